package grammar

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Numbers have at most 20 digits before the point and 20 behind it, so that they end, and what
// has an exponent stays in the range of a float64.
const (
	maxDigits  = 20
	intPart    = `(?:0|[1-9][0-9]{0,19})`
	fraction   = `(?:\.[0-9]{1,20})?`
	exponent   = `(?:[eE](?:\+?(?:[0-9]{1,2}|1[0-9]{2}|2[0-7][0-9])|-(?:[0-9]{1,2}|[12][0-9]{2})))?`
	anyInteger = `0|-?[1-9][0-9]{0,19}`
	anyNumber  = `-?` + intPart + fraction + exponent
	anyDecimal = `-?` + intPart + fraction
)

// maxMultiple bounds multipleOf, whose automaton has a state for each remainder.
const maxMultiple = 1000

// bound is an end of a range of numbers.
type bound struct {
	value *big.Rat
	open  bool // the value itself is outside
}

// numberRange is what the keywords of a number say.
type numberRange struct {
	integer   bool
	low, high *bound // nil is none
	multiple  *big.Rat
}

// numbers is the automaton of the numbers in a range, nil where there are none.
func numbers(r numberRange, w *work) (*chars, error) {
	multiple := 1
	if r.multiple != nil {
		var err error
		if multiple, err = r.wholeMultiple(); err != nil {
			return nil, err
		}
	}
	syntax := anyNumber
	switch {
	case r.integer:
		syntax = anyInteger
	case r.low != nil || r.high != nil:
		syntax = anyDecimal
	}
	patterns := []string{syntax}
	if r.low != nil {
		patterns = append(patterns, r.low.atLeast())
	}
	if r.high != nil {
		patterns = append(patterns, r.high.atMost())
	}
	c, err := intersection(patterns, w)
	if err == nil && multiple > 1 {
		var ok bool
		if c, ok = both(c, multiples(multiple), w); !ok {
			err = errTooLarge
		}
	}
	return c, err
}

// wholeMultiple is multipleOf as a whole number; it makes of r a range of integers.
func (r *numberRange) wholeMultiple() (int, error) {
	m := r.multiple
	if !m.IsInt() || m.Sign() <= 0 || m.Cmp(big.NewRat(maxMultiple, 1)) > 0 {
		return 0, fmt.Errorf("multipleOf is honoured for whole numbers from 1 to %d", maxMultiple)
	}
	r.integer = true
	return int(m.Num().Int64()), nil
}

// intersection is the automaton of what all patterns match whole.
func intersection(patterns []string, w *work) (*chars, error) {
	var all *chars
	for i, p := range patterns {
		c, err := compilePattern(p, false, w)
		if err != nil {
			return nil, err
		}
		ok := true
		if i == 0 {
			all = c
		} else if all, ok = both(all, c, w); !ok {
			return nil, errTooLarge
		}
	}
	return all, nil
}

// multiples accepts the integers that m divides: a state for the sign, the start and each
// remainder.
func multiples(m int) *chars {
	c := &chars{}
	c.add(noLabel)
	c.add(noLabel)
	const first = 2
	digits := func(rest int) (edges []edge) {
		for d := range 10 {
			edges = append(edges, edge{rune('0' + d), rune('0' + d), int32(first + (rest*10+d)%m)})
		}
		return edges
	}
	for rest := range m {
		s := c.add(noLabel)
		c.edges[s] = digits(rest)
	}
	c.label[first] = 0
	c.edges[1] = digits(0)
	c.edges[0] = append([]edge{{'-', '-', 1}}, digits(0)...)
	return c.trim()
}

// atLeast is a pattern of the decimals that are in the range above b.
func (b *bound) atLeast() string {
	if b.value.Sign() >= 0 {
		return above(b.value, b.open)
	}
	return intPart + fraction + `|-(?:` + below(negated(b.value), b.open) + `)`
}

// atMost is a pattern of the decimals that are in the range below b.
func (b *bound) atMost() string {
	negative := `-` + intPart + fraction
	switch {
	case b.value.Sign() > 0:
		return negative + `|` + below(b.value, b.open)
	case b.value.Sign() == 0 && !b.open:
		return negative + `|0(?:\.0{1,20})?`
	}
	return `-(?:` + above(negated(b.value), b.open) + `)`
}

func negated(r *big.Rat) *big.Rat { return new(big.Rat).Neg(r) }

// decimal is the digits of a value that is not negative, before and behind the point.
func decimal(r *big.Rat) (whole, part string) {
	n, _ := r.FloatPrec()
	whole, part, _ = strings.Cut(r.FloatString(n), ".")
	return whole, part
}

// above is a pattern of the decimals that are at least r, or more than it where open; r is not
// negative.
func above(r *big.Rat, open bool) string {
	whole, part := decimal(r)
	if len(whole) > maxDigits {
		return none
	}
	var alternatives []string
	if n := len(whole); n < maxDigits {
		alternatives = append(alternatives, fmt.Sprintf(`[1-9][0-9]{%d,%d}`, n, maxDigits-1)+fraction)
	}
	for i, d := range whole {
		if d < '9' {
			alternatives = append(alternatives, whole[:i]+fmt.Sprintf(`[%c-9][0-9]{%d}`, d+1, len(whole)-1-i)+fraction)
		}
	}
	same := fractionAbove(part, open)
	if strings.Trim(part, "0") == "" && !open {
		same = fraction
	}
	return strings.Join(append(alternatives, whole+same), `|`)
}

// none matches nothing.
const none = `[^\x00-\x{10FFFF}]`

// fractionAbove is a pattern of the fractions, with their point, that are at least .part, or
// more where open.
func fractionAbove(part string, open bool) string {
	var alternatives []string
	for i, d := range part {
		if d < '9' {
			alternatives = append(alternatives, part[:i]+fmt.Sprintf(`[%c-9]`, d+1)+digitsLeft(i+1))
		}
	}
	if !open {
		alternatives = append(alternatives, part+digitsLeft(len(part)))
	} else if len(part) < maxDigits {
		zeros := fmt.Sprintf(`0{0,%d}`, maxDigits-1-len(part))
		alternatives = append(alternatives, part+zeros+`[1-9][0-9]*`)
	}
	return `\.(?:` + orNone(alternatives) + `)`
}

// below is a pattern of the decimals that are at most r, or less than it where open; r is not
// negative.
func below(r *big.Rat, open bool) string {
	whole, part := decimal(r)
	if len(whole) > maxDigits {
		return intPart + fraction
	}
	var alternatives []string
	if n := len(whole); n > 1 {
		alternatives = append(alternatives, `0`+fraction, fmt.Sprintf(`[1-9][0-9]{0,%d}`, n-2)+fraction)
	}
	for i, d := range whole {
		low := '0'
		if i == 0 && len(whole) > 1 {
			low = '1'
		}
		if d > low {
			alternatives = append(alternatives, whole[:i]+fmt.Sprintf(`[%c-%c][0-9]{%d}`, low, d-1, len(whole)-1-i)+fraction)
		}
	}
	if same, ok := fractionBelow(part, open); ok {
		alternatives = append(alternatives, whole+same)
	}
	return orNone(alternatives)
}

// fractionBelow is a pattern of the fractions, with their point or empty, that are at most
// .part, or less where open. There may be none.
func fractionBelow(part string, open bool) (string, bool) {
	digits := strings.TrimRight(part, "0")
	var alternatives []string
	for i, d := range digits {
		if d > '0' {
			alternatives = append(alternatives, digits[:i]+fmt.Sprintf(`[0-%c]`, d-1)+digitsLeft(i+1))
		}
		if i > 0 {
			alternatives = append(alternatives, digits[:i])
		}
	}
	if !open {
		alternatives = append(alternatives, digits+fmt.Sprintf(`0{0,%d}`, maxDigits-len(digits)))
	}
	if digits == "" {
		return `(?:\.0{1,20})?`, !open
	}
	return `(?:\.(?:` + strings.Join(alternatives, `|`) + `))?`, true
}

// digitsLeft matches up to so many digits that a fraction has n before them.
func digitsLeft(n int) string { return fmt.Sprintf(`[0-9]{0,%d}`, max(maxDigits-n, 0)) }

func orNone(alternatives []string) string {
	if len(alternatives) == 0 {
		return none
	}
	return strings.Join(alternatives, `|`)
}

// errBound is a bound that cannot be honoured exactly.
var errBound = errors.New("numbers have at most 20 digits before and 20 behind the decimal point")
