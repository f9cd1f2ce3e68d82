package chat

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// maxPad bounds the width and the digits of one formatted value.
const maxPad = 1000

// center is str.center: spaces, or another character, on both sides.
func center(f *fence, s string, a *exec.VarArgs) *exec.Value {
	width, fill := count(a, 0, 80), text(a, 1, " ")
	if w := a.KwArgs["width"]; w != nil {
		width = w.Integer()
	}
	if width > maxPad || utf8.RuneCountInString(fill) != 1 {
		return f.failf("the template centers in %d with %q, want at most %d and one character", width, shorten(fill), maxPad)
	}
	pad := max(width-utf8.RuneCountInString(s), 0)
	left := pad/2 + pad&width&1
	return exec.AsValue(strings.Repeat(fill, left) + s + strings.Repeat(fill, pad-left))
}

// namesOf is the right side of a % that is no tuple as the arguments of format.
func namesOf(v *exec.Value) *exec.VarArgs {
	if !v.IsDict() {
		return &exec.VarArgs{Args: []*exec.Value{v}}
	}
	named := map[string]*exec.Value{}
	for _, pair := range items(v) {
		kv := elements(exec.ToValue(pair))
		named[exec.ToValue(kv[0]).String()] = exec.ToValue(kv[1])
	}
	return &exec.VarArgs{KwArgs: named}
}

// directive is a part of a format: %, perhaps a name, flags, width and digits, and a kind.
var directive = regexp.MustCompile(`%(?:\(([^()]*)\))?([-+ 0]*)(\d*)(?:\.(\d*))?(.?)`)

// format is the % of Python's strings, for the kinds s d i u f F e E g G x X o and %.
func format(f *fence, pattern string, a *exec.VarArgs) *exec.Value {
	var out strings.Builder
	last, next := 0, 0
	for _, at := range directive.FindAllStringSubmatchIndex(pattern, -1) {
		part := func(i int) string {
			if at[2*i] < 0 {
				return ""
			}
			return pattern[at[2*i]:at[2*i+1]]
		}
		out.WriteString(pattern[last:at[0]])
		last = at[1]
		kind := part(5)
		if kind == "%" {
			out.WriteByte('%')
			continue
		}
		var v *exec.Value
		if at[2] >= 0 {
			v = a.KwArgs[part(1)]
		} else if next < len(a.Args) {
			v = a.Args[next]
			next++
		}
		if v == nil {
			return f.failf("the template formats %.40q and gives it no value", part(0))
		}
		text, err := directed(v, kind, part(2), part(3), part(4), at[8] >= 0)
		if err != nil {
			return f.failf("the template formats %.40q: %v", part(0), err)
		}
		if f.room(out.Len()+len(text)) != nil {
			return exec.AsValue(f.err)
		}
		out.WriteString(text)
	}
	if next < len(a.Args) && len(a.KwArgs) == 0 {
		return f.failf("the template formats %d values, and its text takes %d", len(a.Args), next)
	}
	out.WriteString(pattern[last:])
	return exec.AsValue(out.String())
}

// directed is one value as a directive wants it. precise says that there are digits,
// none of which is 0.
func directed(v *exec.Value, kind, flags, width, digits string, precise bool) (string, error) {
	for _, n := range []string{width, digits} {
		if i, err := strconv.Atoi(n); n != "" && (err != nil || i > maxPad) {
			return "", fmt.Errorf("%s is more than %d", shorten(n), maxPad)
		}
	}
	if precise {
		width += "." + digits
	}
	switch kind {
	case "s":
		flags = strings.Map(func(r rune) rune { // the others are for numbers
			if r == '-' {
				return r
			}
			return -1
		}, flags)
		return fmt.Sprintf("%"+flags+width+"s", v.String()), nil
	case "d", "i", "u", "x", "X", "o":
		n, err := whole(v)
		if kind == "i" || kind == "u" {
			kind = "d"
		}
		return fmt.Sprintf("%"+flags+width+kind, n), err
	case "f", "F", "e", "E", "g", "G":
		if !v.IsNumber() && !v.IsBool() {
			return "", fmt.Errorf("%s is no number", kindOf(v))
		}
		if kind[0]|0x20 == 'g' && !precise {
			width += ".6"
		}
		return fmt.Sprintf("%"+flags+width+kind, real(v)), nil
	}
	return "", fmt.Errorf("there is no kind %q here", kind)
}

// real is a number or a truth as a float.
func real(v *exec.Value) float64 {
	if v.IsBool() {
		return float64(truth(v))
	}
	return v.Float()
}

func truth(v *exec.Value) int {
	if v.IsTrue() {
		return 1
	}
	return 0
}

// whole is a number without its fraction.
func whole(v *exec.Value) (int, error) {
	switch {
	case v.IsBool():
		return truth(v), nil
	case v.IsInteger():
		return v.Integer(), nil
	case v.IsNumber() && math.Abs(v.Float()) < 1<<53:
		return int(v.Float()), nil
	}
	return 0, fmt.Errorf("%s is no whole number", kindOf(v))
}
