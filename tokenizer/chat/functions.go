package chat

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// function is how gonja calls into Go.
type function = func(*exec.VarArgs) *exec.Value

// globals returns everything that a template can name, by name.
func globals(f *fence, date time.Time) map[string]any {
	g := map[string]any{
		fnCheck: function(func(a *exec.VarArgs) *exec.Value { return f.check(a.First()) }),
		fnPrint: function(func(a *exec.VarArgs) *exec.Value { return f.check(a.First()) }),
		fnLoop:  function(func(a *exec.VarArgs) *exec.Value { return f.loop(a.First()) }),
		fnItem:  function(func(a *exec.VarArgs) *exec.Value { return item(f, a.Args[0], a.Args[1]) }),
		fnAttr:  function(func(a *exec.VarArgs) *exec.Value { return member(a.Args[0], a.Args[1]) }),
		fnFormat: function(func(a *exec.VarArgs) *exec.Value {
			if !a.Args[0].IsString() {
				return f.failf("the template calculates with %s and a tuple", kindOf(a.Args[0]))
			}
			return f.check(format(f, a.Args[0].String(), &exec.VarArgs{Args: a.Args[1:]}))
		}),
		fnMethod:    function(func(a *exec.VarArgs) *exec.Value { return method(f, a) }),
		"range":     function(func(a *exec.VarArgs) *exec.Value { return rangeOf(f, a) }),
		"namespace": function(func(a *exec.VarArgs) *exec.Value { return namespaceOf(f, a) }),
		"raise_exception": function(func(a *exec.VarArgs) *exec.Value {
			return f.failf("the template refuses: %s", shorten(a.First().String()))
		}),
	}
	for op, apply := range operators {
		g[fnOp+tokenText[op]] = function(func(a *exec.VarArgs) *exec.Value {
			if err := f.step(0); err != nil {
				return exec.AsValue(err)
			}
			return f.check(apply(f, a.Args[0], a.Args[1]))
		})
	}
	if !date.IsZero() {
		g["strftime_now"] = function(func(a *exec.VarArgs) *exec.Value { return f.value(strftime(date, a.First().String())) })
	}
	return g
}

// tokenText has the text of the operators that are guarded.
var tokenText = map[tokens.Type]string{
	tokens.Addition: "+", tokens.Subtraction: "-", tokens.Multiply: "*", tokens.Division: "/",
	tokens.FloorDivision: "//", tokens.Modulo: "%", tokens.Power: "**", tokens.Tilde: "~",
}

// operators compute as Python does.
var operators = map[tokens.Type]func(f *fence, a, b *exec.Value) *exec.Value{
	tokens.Addition: add,
	tokens.Multiply: multiply,
	tokens.Tilde: func(f *fence, a, b *exec.Value) *exec.Value {
		return exec.AsValue(a.String() + b.String())
	},
	tokens.Subtraction: arithmetic(func(a, b int) (int, bool) { return a - b, true }, func(a, b float64) float64 { return a - b }),
	tokens.Division:    arithmetic(nil, func(a, b float64) float64 { return a / b }),
	tokens.FloorDivision: arithmetic(func(a, b int) (int, bool) {
		if b == 0 {
			return 0, false
		}
		q := a / b
		if a%b != 0 && (a < 0) != (b < 0) {
			q--
		}
		return q, true
	}, func(a, b float64) float64 { return math.Floor(a / b) }),
	tokens.Modulo: func(f *fence, a, b *exec.Value) *exec.Value {
		if a.IsString() {
			return format(f, a.String(), namesOf(b))
		}
		return modulo(f, a, b)
	},
	tokens.Power: arithmetic(func(a, b int) (int, bool) {
		p := math.Pow(float64(a), float64(b))
		return int(p), b >= 0 && math.Abs(p) < 1<<53
	}, math.Pow),
}

// modulo has the sign of b.
var modulo = arithmetic(func(a, b int) (int, bool) {
	if b == 0 {
		return 0, false
	}
	m := a % b
	if m != 0 && (m < 0) != (b < 0) {
		m += b
	}
	return m, true
}, func(a, b float64) float64 { return a - b*math.Floor(a/b) })

// arithmetic makes an operator on numbers. Where whole is absent or refuses, the
// result is a float, except that nothing is divided by zero.
func arithmetic(whole func(a, b int) (int, bool), real func(a, b float64) float64) func(*fence, *exec.Value, *exec.Value) *exec.Value {
	return func(f *fence, a, b *exec.Value) *exec.Value {
		if !a.IsNumber() || !b.IsNumber() {
			return f.failf("the template calculates with %s and %s", kindOf(a), kindOf(b))
		}
		if whole != nil && a.IsInteger() && b.IsInteger() {
			if n, ok := whole(a.Integer(), b.Integer()); ok {
				return exec.AsValue(n)
			}
		}
		x := real(a.Float(), b.Float())
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return f.failf("the template calculates something that is not a number")
		}
		return exec.AsValue(x)
	}
}

var addNumbers = arithmetic(func(a, b int) (int, bool) { return a + b, true }, func(a, b float64) float64 { return a + b })

func add(f *fence, a, b *exec.Value) *exec.Value {
	switch {
	case a.IsString() && b.IsString():
		return exec.AsValue(a.String() + b.String())
	case a.IsList() && b.IsList():
		return exec.AsValue(append(elements(a), elements(b)...))
	case a.IsNumber() && b.IsNumber():
		return addNumbers(f, a, b)
	}
	return f.failf("the template adds %s and %s", kindOf(a), kindOf(b))
}

var multiplyNumbers = arithmetic(func(a, b int) (int, bool) { return a * b, true }, func(a, b float64) float64 { return a * b })

func multiply(f *fence, a, b *exec.Value) *exec.Value {
	if a.IsInteger() && (b.IsString() || b.IsList()) {
		a, b = b, a
	}
	if !a.IsString() && !a.IsList() || !b.IsInteger() {
		return multiplyNumbers(f, a, b)
	}
	n := max(0, b.Integer())
	if n > f.maxValue || f.room(n*(a.Len()*4+1)) != nil {
		return f.failf("the template repeats a value %d times", n)
	}
	if a.IsString() {
		return exec.AsValue(strings.Repeat(a.String(), n))
	}
	var out []any
	for range n {
		out = append(out, elements(a)...)
	}
	return exec.AsValue(out)
}

// elements returns the elements of a list, nothing for other values.
func elements(v *exec.Value) []any {
	if !v.IsList() {
		return nil
	}
	out := make([]any, 0, v.Len())
	for i := range v.Len() {
		out = append(out, v.Index(i).Interface())
	}
	return out
}

// item is value[key]: undefined when there is none.
func item(f *fence, v, key *exec.Value) *exec.Value {
	if v.IsError() || key.IsError() {
		return f.fail(errors.New("the template looks something up in an error"))
	}
	if !key.IsInteger() {
		return member(v, key)
	}
	i := key.Integer()
	switch {
	case v.IsString():
		chars := []rune(v.String())
		if i < 0 {
			i += len(chars)
		}
		if i >= 0 && i < len(chars) {
			return exec.AsValue(string(chars[i]))
		}
	case v.IsList():
		if i < 0 {
			i += v.Len()
		}
		if i >= 0 && i < v.Len() {
			return v.Index(i)
		}
	}
	return exec.AsValue(nil)
}

// member is value.name: an entry of a mapping or a property of a loop. Go's own
// fields and methods are out of reach.
func member(v, name *exec.Value) *exec.Value {
	if v.IsNil() || v.IsError() || !name.IsString() {
		return exec.AsValue(nil)
	}
	if g, ok := v.Interface().(exec.AttributeGetter); ok {
		if got, ok := g.GetAttribute(name.String()); ok && got != nil {
			return got
		}
		return exec.AsValue(nil)
	}
	if v.IsDict() {
		if got, ok := v.GetItem(name.String()); ok && got != nil {
			return got
		}
	}
	return exec.AsValue(nil)
}

// rangeOf is range(stop), range(start, stop) or range(start, stop, step).
func rangeOf(f *fence, a *exec.VarArgs) *exec.Value {
	start, stop, step := 0, 0, 1
	for _, v := range a.Args {
		if !v.IsInteger() {
			return f.failf("the template gives range %s", kindOf(v))
		}
	}
	switch len(a.Args) {
	case 1:
		stop = a.Args[0].Integer()
	case 2, 3:
		start, stop = a.Args[0].Integer(), a.Args[1].Integer()
		if len(a.Args) == 3 {
			step = a.Args[2].Integer()
		}
	default:
		return f.failf("the template gives range %d arguments", len(a.Args))
	}
	if step == 0 {
		return f.failf("the template gives range a step of zero")
	}
	out := []int{}
	for n := start; step > 0 && n < stop || step < 0 && n > stop; n += step {
		if len(out) == maxItems {
			return f.failf("the template makes a range of more than %d numbers", maxItems)
		}
		out = append(out, n)
		if (n > math.MaxInt32 || n < math.MinInt32) || (step > math.MaxInt32 || step < math.MinInt32) {
			return f.failf("the template makes a range of numbers that are too large")
		}
	}
	return f.value(out)
}

func namespaceOf(f *fence, a *exec.VarArgs) *exec.Value {
	ns := namespace{}
	for name, v := range a.KwArgs {
		if _, ok := v.Interface().(namespace); ok {
			return f.fail(errNamespace)
		}
		ns[name] = v.Interface()
	}
	return f.value(ns)
}

// strftime writes a date as Python does, for the directives that templates use;
// others stay as they are.
func strftime(t time.Time, format string) string {
	layouts := map[byte]string{
		'd': "02", 'm': "01", 'Y': "2006", 'y': "06", 'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
		'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'Z': "MST", 'z': "-0700", 'F': "2006-01-02",
	}
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		switch layout, ok := layouts[format[i]]; {
		case ok:
			out.WriteString(t.Format(layout))
		case format[i] == '%':
			out.WriteByte('%')
		default:
			out.WriteString(format[i-1 : i+1])
		}
	}
	return out.String()
}
