package chat

import (
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// method is value.name(arguments...): the methods of Python that templates use.
func method(f *fence, a *exec.VarArgs) *exec.Value {
	if err := f.step(0); err != nil {
		return exec.AsValue(err)
	}
	v, name := a.Args[0], a.Args[1].String()
	rest := &exec.VarArgs{Args: a.Args[2:], KwArgs: a.KwArgs}
	if fn, ok := member(v, a.Args[1]).Interface().(func(*exec.VarArgs) *exec.Value); ok {
		return f.check(fn(rest))
	}
	switch {
	case v.IsString():
		if m := stringMethods[name]; m != nil {
			return f.check(m(f, v.String(), rest))
		}
	case v.IsDict():
		if m := dictMethods[name]; m != nil {
			return f.check(m(v, rest))
		}
	}
	return f.failf("the template calls the method %s, which %s does not have here", name, kindOf(v))
}

// text returns argument i as a string, or def when it is absent.
func text(a *exec.VarArgs, i int, def string) string {
	if i < len(a.Args) {
		return a.Args[i].String()
	}
	return def
}

// count returns argument i as a number, or def when it is absent.
func count(a *exec.VarArgs, i int, def int) int {
	if i < len(a.Args) {
		return a.Args[i].Integer()
	}
	return def
}

type stringMethod = func(f *fence, s string, a *exec.VarArgs) *exec.Value

var stringMethods = map[string]stringMethod{
	"strip":      trimmer(strings.TrimFunc, strings.Trim),
	"lstrip":     trimmer(strings.TrimLeftFunc, strings.TrimLeft),
	"rstrip":     trimmer(strings.TrimRightFunc, strings.TrimRight),
	"upper":      mapper(strings.ToUpper),
	"lower":      mapper(strings.ToLower),
	"title":      mapper(title),
	"capitalize": mapper(capitalize),
	"split":      func(f *fence, s string, a *exec.VarArgs) *exec.Value { return split(f, s, a) },
	"splitlines": func(f *fence, s string, a *exec.VarArgs) *exec.Value { return splitLines(f, s) },
	"join": func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		return join(f, a.First(), s)
	},
	"replace": func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		return replace(f, s, text(a, 0, ""), text(a, 1, ""), count(a, 2, -1))
	},
	"startswith": func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		return anyAffix(s, a.First(), strings.HasPrefix)
	},
	"endswith": func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		return anyAffix(s, a.First(), strings.HasSuffix)
	},
	"removeprefix": func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		return exec.AsValue(strings.TrimPrefix(s, text(a, 0, "")))
	},
	"removesuffix": func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		return exec.AsValue(strings.TrimSuffix(s, text(a, 0, "")))
	},
	"center": center,
	"find": func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		i := strings.Index(s, text(a, 0, ""))
		if i > 0 {
			i = len([]rune(s[:i]))
		}
		return exec.AsValue(i)
	},
	"count": func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		return exec.AsValue(strings.Count(s, text(a, 0, "")))
	},
	"isdigit": func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		return exec.AsValue(s != "" && strings.TrimFunc(s, unicode.IsDigit) == "")
	},
}

// trimmer makes a method that removes white space or the characters given.
func trimmer(spaces func(string, func(rune) bool) string, chars func(string, string) string) stringMethod {
	return func(f *fence, s string, a *exec.VarArgs) *exec.Value {
		if len(a.Args) == 0 || a.Args[0].IsNil() {
			return exec.AsValue(spaces(s, isSpace))
		}
		return exec.AsValue(chars(s, a.Args[0].String()))
	}
}

// isSpace is str.isspace of Python, which has four separators more than Unicode.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

func mapper(m func(string) string) stringMethod {
	return func(f *fence, s string, a *exec.VarArgs) *exec.Value { return exec.AsValue(m(s)) }
}

func title(s string) string {
	after := false
	return strings.Map(func(r rune) rune {
		defer func() { after = unicode.IsLetter(r) }()
		if after {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

func capitalize(s string) string {
	first := true
	return strings.Map(func(r rune) rune {
		if first {
			first = false
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

func split(f *fence, s string, a *exec.VarArgs) *exec.Value {
	sep, limit := text(a, 0, ""), count(a, 1, -1)
	if v := a.KwArgs["maxsplit"]; v != nil {
		limit = v.Integer()
	}
	if len(a.Args) > 0 && a.Args[0].IsNil() {
		sep = ""
	}
	if f.room(16*(strings.Count(s, sep)+1)) != nil {
		return exec.AsValue(f.err)
	}
	if sep != "" {
		if limit < 0 {
			return exec.AsValue(strings.Split(s, sep))
		}
		return exec.AsValue(strings.SplitN(s, sep, limit+1))
	}
	if limit >= 0 {
		return f.failf("the template splits at white space with a limit")
	}
	return exec.AsValue(strings.FieldsFunc(s, isSpace))
}

func splitLines(f *fence, s string) *exec.Value {
	if f.room(16*(strings.Count(s, "\n")+1)) != nil {
		return exec.AsValue(f.err)
	}
	lines := []string{}
	for line := range strings.Lines(strings.ReplaceAll(s, "\r\n", "\n")) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return exec.AsValue(lines)
}

func join(f *fence, list *exec.Value, sep string) *exec.Value {
	parts := []string{}
	for _, e := range elements(f.loop(list)) {
		parts = append(parts, exec.ToValue(e).String())
	}
	if f.room(len(parts)*len(sep)) != nil {
		return exec.AsValue(f.err)
	}
	return exec.AsValue(strings.Join(parts, sep))
}

func replace(f *fence, s, from, to string, limit int) *exec.Value {
	n := strings.Count(s, from)
	if limit >= 0 {
		n = min(n, limit)
	}
	if f.room(len(s)+n*len(to)) != nil {
		return exec.AsValue(f.err)
	}
	return exec.AsValue(strings.Replace(s, from, to, limit))
}

func anyAffix(s string, affix *exec.Value, has func(string, string) bool) *exec.Value {
	if !affix.IsList() {
		return exec.AsValue(has(s, affix.String()))
	}
	for _, e := range elements(affix) {
		if has(s, exec.ToValue(e).String()) {
			return exec.AsValue(true)
		}
	}
	return exec.AsValue(false)
}

var dictMethods = map[string]func(d *exec.Value, a *exec.VarArgs) *exec.Value{
	"items": func(d *exec.Value, a *exec.VarArgs) *exec.Value { return exec.AsValue(items(d)) },
	"keys": func(d *exec.Value, a *exec.VarArgs) *exec.Value {
		keys := []any{}
		for _, p := range pairs(d) {
			keys = append(keys, p[0])
		}
		return exec.AsValue(keys)
	},
	"values": func(d *exec.Value, a *exec.VarArgs) *exec.Value {
		values := []any{}
		for _, p := range pairs(d) {
			values = append(values, p[1])
		}
		return exec.AsValue(values)
	},
	"get": func(d *exec.Value, a *exec.VarArgs) *exec.Value {
		if v := member(d, a.First()); !v.IsNil() {
			return v
		}
		if len(a.Args) > 1 {
			return a.Args[1]
		}
		return exec.AsValue(nil)
	},
}

// pairs returns the keys and values of a dictionary in order.
func pairs(d *exec.Value) (out [][2]any) {
	if dict, ok := d.Interface().(*exec.Dict); ok {
		for _, p := range dict.Pairs {
			out = append(out, [2]any{p.Key.Interface(), p.Value.Interface()})
		}
		return out
	}
	for _, key := range d.Keys() {
		v, _ := d.GetItem(key.Interface())
		out = append(out, [2]any{key.Interface(), v.Interface()})
	}
	return out
}

// items returns a list of pairs, each a list of two.
func items(d *exec.Value) []any {
	out := []any{}
	for _, p := range pairs(d) {
		out = append(out, []any{p[0], p[1]})
	}
	return out
}
