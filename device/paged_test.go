package device

import "testing"

// R9: a share is floored with a guard, so that what is whole in decimal is whole.
func TestSharesAreFlooredWithAGuard(t *testing.T) {
	for _, c := range []struct {
		share   float64
		n, want int
	}{{.3, 10, 3}, {.29, 100, 29}, {.57, 100, 57}, {.1, 9, 0}, {.1, 10, 1}, {.35, 20, 7}, {.999, 1000, 999}, {1, 17, 17}, {.5, 3, 1}} {
		if got := (Amount{Share: c.share}).Of(c.n); got != c.want {
			t.Errorf("%v of %d is %d, want %d", c.share, c.n, got, c.want)
		}
	}
	if got := (Amount{Count: 7}).Of(3); got != 7 {
		t.Errorf("a count of 7 is %d", got)
	}
	// 1 - .7 of 100 is 30.000000000000004 or 29.999999999999996, floored to 30.
	if got := (Span{Drop: 1 - .7}).Bound(99); got != 29 {
		t.Errorf("the bound of the row at 99 is %d, want 29", got)
	}
}
