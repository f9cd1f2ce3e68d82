package console

import (
	"math"
	"testing"
	"time"
)

func TestSizesCountsAndTimes(t *testing.T) {
	for want, got := range map[string]string{
		"0 B": SizeText(0), "1023 B": SizeText(1023), "1.00 KiB": SizeText(1024), "4.58 GiB": SizeText(4_920_000_000),
		"1024 PiB": SizeText(1 << 60), "999": CountText(999), "260 K": CountText(260_032), "8.03 B": CountText(8_030_261_312),
		"1.50 ms": TimeText(1500 * time.Microsecond), "12.3 s": TimeText(12300 * time.Millisecond), "2m5s": TimeText(125 * time.Second),
		"": RateText(math.NaN()), " at 59.1 tok/s": RateText(59.06), "1 token": Plural(1, "token"), "0 tokens": Plural(0, "token"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if RateText(math.Inf(1)) != "" || Round3(math.NaN()) != 0 || Round3(1.23456) != 1.235 {
		t.Error("figures that are none")
	}
}
