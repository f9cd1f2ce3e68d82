package grammar

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/gollm/gollm/internal/quote"
)

// count is the value of a keyword that counts, absent where there is none.
func count(path string, v *value, name string, absent int) (int, error) {
	at := v.member(name)
	if at == nil {
		return absent, nil
	}
	r, err := rational(at)
	if err != nil || !r.IsInt() || r.Sign() < 0 {
		return 0, refuse(path, "%s is a whole number of at least 0", name)
	}
	if !r.Num().IsInt64() || r.Num().Int64() > math.MaxInt32-1 {
		return math.MaxInt32 - 1, nil
	}
	return int(r.Num().Int64()), nil
}

// maxExponent bounds the exponents of the numbers of a schema.
const maxExponent = 400

// rational is the value of a number.
func rational(v *value) (*big.Rat, error) {
	if v.kind != isNumber {
		return nil, fmt.Errorf("%v, want a number", v.kind)
	}
	if i := strings.IndexAny(v.text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(v.text[i+1:]); err != nil || e > maxExponent || e < -maxExponent {
			return nil, errBound
		}
	}
	if len(v.text) > maxExponent {
		return nil, errBound
	}
	r, ok := new(big.Rat).SetString(v.text)
	if !ok {
		return nil, errBound
	}
	return r, nil
}

// str is the atom of the strings that v allows, nil for none.
func (c *compiler) str(path string, v *value) (*atom, error) {
	low, err := count(path, v, "minLength", 0)
	if err != nil {
		return nil, err
	}
	high, err := count(path, v, "maxLength", -1)
	if err != nil {
		return nil, err
	}
	if high >= 0 && low > high {
		return nil, nil
	}
	if v.member("pattern") == nil && v.member("format") == nil {
		return c.freeString(low, high), nil
	}
	// Equal strings share a lexeme, and with it their masks.
	key := fmt.Sprint(string(v.part("pattern")), " ", string(v.part("format")), " ", low, " ", high)
	lex, ok := c.lexemes[key]
	if !ok {
		if c.patterned++; c.patterned > maxPatterns {
			return nil, refuse(path, "the schema has more than %d different strings with a pattern or format", maxPatterns)
		}
		if lex, err = c.limited(path, v, low, high); err != nil {
			return nil, err
		}
		c.lexemes[key] = lex
	}
	if lex == nil {
		return nil, nil
	}
	return c.atom(atom{shape: aString, lex: lex, max: -1}), nil
}

// maxPatterns bounds the different strings with a pattern or format: a mask may have to look at
// all of them.
const maxPatterns = 100

// part is the text of a member as JSON, nil where there is none.
func (v *value) part(name string) []byte {
	if at := v.member(name); at != nil {
		return at.append(nil)
	}
	return nil
}

// limited is the lexeme of the strings that v allows, nil for none, where it has a pattern or
// format.
func (c *compiler) limited(path string, v *value, low, high int) (*lexeme, error) {
	texts, err := c.patterns(path, v)
	if err != nil {
		return nil, err
	}
	if low > 0 || high >= 0 {
		if max(low, high) >= maxStates {
			return nil, refuse(path, "beside a pattern or format, minLength and maxLength are honoured below %d", maxStates)
		}
		c.work.spend(max(low, high))
		texts = append(texts, lengths(low, high))
	}
	all := texts[0]
	for _, t := range texts[1:] {
		var ok bool
		if all, ok = both(all, t, &c.work); !ok {
			return nil, refuse(path, "what pattern, format and length allow together needs an automaton of more than %d states: make it simpler", maxStates)
		}
	}
	if all == nil {
		return nil, nil
	}
	return newLexeme(all, true), c.pay(path, len(all.label))
}

// pay takes states of an automaton off what a schema may have.
func (c *compiler) pay(path string, states int) error {
	if c.states += states; c.states > maxAutomata {
		return refuse(path, "the patterns, names and enumerations of the schema need automata of more than %d states: make them simpler", maxAutomata)
	}
	return nil
}

// patterns is the automata of pattern and format.
func (c *compiler) patterns(path string, v *value) (texts []*chars, err error) {
	if p := v.member("pattern"); p != nil {
		if p.kind != isString {
			return nil, refuse(path, "pattern is a string, not %v", p.kind)
		}
		t, err := compilePattern(p.text, true, &c.work)
		if err != nil {
			return nil, refuse(path, "the pattern %s is not honoured: %v (patterns are RE2's)", quote.Short(p.text), shortError(err))
		}
		texts = append(texts, t)
	}
	if f := v.member("format"); f != nil {
		make, ok := formats[f.text]
		if f.kind != isString || !ok {
			return nil, refuse(path, "the format %s is not honoured: leave it out, or write one of %s", quote.Short(f.text), formatNames())
		}
		texts = append(texts, make())
	}
	return texts, nil
}

// shortError is an error whose text may quote a long pattern.
func shortError(err error) string {
	if errors.Is(err, errTooLarge) {
		return err.Error()
	}
	return quote.Short(err.Error())
}

// number is the atom of the numbers that v allows, nil for none.
func (c *compiler) number(path string, v *value, integer bool) (*atom, error) {
	// Equal numbers share a lexeme, as strings do.
	key := fmt.Sprint("number ", integer)
	for _, name := range assertions["number"] {
		key += " " + string(v.part(name))
	}
	lex, ok := c.lexemes[key]
	if !ok {
		var err error
		if lex, err = c.numberLexeme(path, v, integer); err != nil {
			return nil, err
		}
		c.lexemes[key] = lex
	}
	if lex == nil {
		return nil, nil
	}
	return c.atom(atom{shape: aScalar, lex: lex, max: -1}), nil
}

// numberLexeme is the lexeme of the numbers that v allows, nil for none.
func (c *compiler) numberLexeme(path string, v *value, integer bool) (*lexeme, error) {
	r := numberRange{integer: integer}
	for _, end := range []struct {
		name string
		to   **bound
		open bool
		more int // the sign of what is the narrower bound
	}{{"minimum", &r.low, false, 1}, {"exclusiveMinimum", &r.low, true, 1}, {"maximum", &r.high, false, -1}, {"exclusiveMaximum", &r.high, true, -1}} {
		at := v.member(end.name)
		if at == nil {
			continue
		}
		b, err := rational(at)
		if err == nil {
			if digits, _ := b.FloatPrec(); digits > maxDigits {
				err = errBound
			}
		}
		if err != nil {
			return nil, refuse(path, "%s is not honoured: %v", end.name, err)
		}
		if old := *end.to; old == nil || b.Cmp(old.value)*end.more >= 0 {
			*end.to = &bound{b, end.open}
		}
	}
	if m := v.member("multipleOf"); m != nil {
		multiple, err := rational(m)
		if err != nil {
			return nil, refuse(path, "multipleOf is not honoured: %v", err)
		}
		r.multiple = multiple
	}
	chars, err := numbers(r, &c.work)
	if err != nil {
		return nil, refuse(path, "the number is not honoured: %v", err)
	}
	if chars == nil {
		return nil, nil
	}
	return newLexeme(chars, false), c.pay(path, len(chars.label))
}

// properties is the atom of the objects that v allows.
func (c *compiler) properties(path string, v *value) (*atom, error) {
	a := c.atom(atom{shape: anObject})
	var err error
	if a.rest, err = c.restOf(path, v, "additionalProperties"); err != nil {
		return nil, err
	}
	index := map[string]int{}
	if p := v.member("properties"); p != nil {
		if p.kind != isObject {
			return nil, refuse(path, "properties is an object, not %v", p.kind)
		}
		for i, m := range p.members {
			n, err := c.compile(m.value, under(path+"/properties", m.name))
			if err != nil {
				return nil, err
			}
			index[m.name] = i
			a.props = append(a.props, property{name: m.name, node: n})
		}
	}
	if r := v.member("required"); r != nil {
		if err := a.require(path, r, index); err != nil {
			return nil, err
		}
	}
	return a, c.finish(path, a)
}

// require marks the properties that v names. One without a schema of its own has that of the
// other properties.
func (a *atom) require(path string, v *value, index map[string]int) error {
	if v.kind != isArray {
		return refuse(path, "required is an array of names, not %v", v.kind)
	}
	for _, name := range v.items {
		if name.kind != isString {
			return refuse(path, "required is an array of names, but has %v", name.kind)
		}
		i, ok := index[name.text]
		if !ok {
			i = len(a.props)
			index[name.text] = i
			a.props = append(a.props, property{name: name.text, node: a.rest})
		}
		a.props[i].required = true
	}
	return nil
}

// maxNames bounds the bytes of the names that may follow each other in an object, over all its
// properties.
const maxNames = 1 << 20

// finish makes the tables of an object whose properties are known.
func (c *compiler) finish(path string, a *atom) error {
	n := len(a.props)
	a.need, a.keys = make([]int32, n+1), make([]*lexeme, n+1)
	a.need[n] = int32(n)
	total := 0
	for _, p := range a.props {
		if len(p.name) > maxWord {
			return refuse(path, "the name of a property has %d bytes, at most %d are honoured", len(p.name), maxWord)
		}
		total += len(p.name) + 1
	}
	bytes, names := 0, 0
	for i := n - 1; i >= 0; i-- {
		size := len(a.props[i].name) + 1
		a.need[i] = a.need[i+1]
		names += size
		switch {
		case a.props[i].required:
			a.need[i], names = int32(i), size
			bytes += size
		case int(a.need[i]) == n && a.rest != nil:
			bytes += total // every name is told from the others
		default:
			bytes += names
		}
	}
	if bytes > maxNames {
		return refuse(path, "too many properties may be left out, each of which may follow each one before: name them in required")
	}
	return c.pay(path, bytes)
}

// maxWord bounds the bytes of a name or of a string of an enumeration.
const maxWord = 1 << 14

// restOf is the schema of what a keyword says of all others, nil for none.
func (c *compiler) restOf(path string, v *value, name string) (*node, error) {
	at := v.member(name)
	switch {
	case at == nil:
		return c.anything(), nil
	case at.kind == isArray:
		return nil, refuse(path, "%s is a schema, not an array: write prefixItems for the schemas of the first items", name)
	}
	return c.compile(at, path+"/"+name)
}

// array is the atom of the arrays that v allows.
func (c *compiler) array(path string, v *value) (*atom, error) {
	a := c.atom(atom{shape: anArray})
	var err error
	if a.rest, err = c.restOf(path, v, "items"); err != nil {
		return nil, err
	}
	if p := v.member("prefixItems"); p != nil {
		if p.kind != isArray {
			return nil, refuse(path, "prefixItems is an array of schemas, not %v", p.kind)
		}
		for i, item := range p.items {
			n, err := c.compile(item, fmt.Sprintf("%s/prefixItems/%d", path, i))
			if err != nil {
				return nil, err
			}
			a.prefix = append(a.prefix, n)
		}
	}
	if a.min, err = count(path, v, "minItems", 0); err != nil {
		return nil, err
	}
	a.max, err = count(path, v, "maxItems", -1)
	return a, err
}
