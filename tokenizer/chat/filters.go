package chat

import (
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// filter is value|name(arguments...). What it returns is checked by the fence.
type filter = func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value

// filterSet returns the filters of this package, each counted and checked.
func filterSet(f *fence) *exec.FilterSet {
	set := map[string]exec.FilterFunction{}
	for name, apply := range filters() {
		set[name] = func(e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
			if err := f.step(0); err != nil {
				return exec.AsValue(err)
			}
			if v.IsError() && name != "default" && name != "d" {
				return v
			}
			return f.check(apply(f, e, v, a))
		}
	}
	return exec.NewFilterSet(set)
}

// filters is a function because select and map look filters up themselves.
func filters() map[string]filter {
	return map[string]filter{
		"trim":       onText("strip"),
		"upper":      onText("upper"),
		"lower":      onText("lower"),
		"title":      onText("title"),
		"capitalize": onText("capitalize"),
		"replace":    onText("replace"),
		"center":     onText("center"),
		"format": func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
			return format(f, v.String(), a)
		},
		"tojson":     toJSON,
		"default":    defaultTo,
		"d":          defaultTo,
		"length":     length,
		"count":      length,
		"list":       list,
		"first":      nth(0),
		"last":       nth(-1),
		"reverse":    reverse,
		"items":      itemsOf,
		"dictsort":   itemsOf,
		"indent":     indent,
		"map":        mapTo,
		"select":     selector(false, true),
		"reject":     selector(false, false),
		"selectattr": selector(true, true),
		"rejectattr": selector(true, false),
		"safe":       func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value { return v },
		"string": func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
			return exec.AsValue(v.String())
		},
		"int": func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
			return exec.AsValue(number(v))
		},
		"float": func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
			return exec.AsValue(v.Float())
		},
		"abs": func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
			if v.IsInteger() {
				return exec.AsValue(max(v.Integer(), -v.Integer()))
			}
			return exec.AsValue(max(v.Float(), -v.Float()))
		},
		"join": func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
			return join(f, v, text(a, 0, ""))
		},
	}
}

// onText makes a filter of a string method.
func onText(method string) filter {
	m := stringMethods[method]
	return func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
		return m(f, v.String(), a)
	}
}

func number(v *exec.Value) int {
	if !v.IsString() {
		return v.Integer()
	}
	n, err := strconv.Atoi(strings.TrimSpace(v.String()))
	if err != nil {
		return 0
	}
	return n
}

func defaultTo(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
	falsy := len(a.Args) > 1 && a.Args[1].IsTrue()
	if b := a.KwArgs["boolean"]; b != nil {
		falsy = b.IsTrue()
	}
	if v.IsNil() || v.IsError() || falsy && !v.IsTrue() {
		return a.First()
	}
	return v
}

func length(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
	if !v.IsString() && !v.IsList() && !v.IsDict() {
		return f.failf("the template asks for the length of %s", kindOf(v))
	}
	return exec.AsValue(v.Len())
}

func list(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
	if v = f.loop(v); v.IsError() {
		return v
	}
	if v.IsDict() {
		return dictMethods["keys"](v, a)
	}
	return exec.AsValue(elements(v))
}

func nth(i int) filter {
	return func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
		return item(f, v, exec.AsValue(i))
	}
}

func reverse(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
	in := elements(f.loop(v))
	out := make([]any, 0, len(in))
	for i := len(in) - 1; i >= 0; i-- {
		out = append(out, in[i])
	}
	return exec.AsValue(out)
}

func itemsOf(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
	if !v.IsDict() {
		return f.failf("the template asks for the items of %s", kindOf(v))
	}
	return exec.AsValue(items(v))
}

// indent puts spaces in front of every line but the first, and but empty ones.
func indent(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
	width, first := count(a, 0, 4), len(a.Args) > 1 && a.Args[1].IsTrue()
	if w := a.KwArgs["width"]; w != nil {
		width = w.Integer()
	}
	if b := a.KwArgs["first"]; b != nil {
		first = b.IsTrue()
	}
	s := v.String()
	if width < 0 || width > 1000 || f.room(len(s)+width*(strings.Count(s, "\n")+1)) != nil {
		return f.failf("the template indents by %d", width)
	}
	pad := strings.Repeat(" ", width)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if line != "" && i > 0 || i == 0 && first {
			lines[i] = pad + line
		}
	}
	return exec.AsValue(strings.Join(lines, "\n"))
}

// mapTo is map("filter", ...) or map(attribute="name").
func mapTo(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
	if v = f.loop(v); v.IsError() {
		return v
	}
	out := []any{}
	for _, each := range elements(v) {
		if err := f.step(0); err != nil {
			return exec.AsValue(err)
		}
		got := exec.ToValue(each)
		if name := a.KwArgs["attribute"]; name != nil {
			got = item(f, got, name)
		}
		if len(a.Args) > 0 {
			got = e.ExecuteFilterByName(a.Args[0].String(), got, &exec.VarArgs{Args: a.Args[1:], KwArgs: a.KwArgs})
		}
		if got.IsError() {
			return got
		}
		out = append(out, got.Interface())
	}
	return exec.AsValue(out)
}

// selector keeps the elements of a list that pass a test, or that do not.
func selector(byAttribute, keep bool) filter {
	return func(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
		if v = f.loop(v); v.IsError() {
			return v
		}
		args := a.Args
		var name *exec.Value
		if byAttribute {
			if len(args) == 0 {
				return f.failf("the template selects by an attribute that it does not name")
			}
			name, args = args[0], args[1:]
		}
		cost := 0 // a test may go through its arguments for each element
		for _, arg := range args {
			size, err := f.measure(arg.Val, 0)
			if err != nil {
				return f.fail(err)
			}
			cost += size
		}
		out := []any{}
		for _, each := range elements(v) {
			if err := f.step(cost); err != nil {
				return exec.AsValue(err)
			}
			subject := exec.ToValue(each)
			if name != nil {
				subject = item(f, subject, name)
			}
			result := subject
			if len(args) > 0 {
				result = e.ExecuteTestByName(args[0].String(), subject, &exec.VarArgs{Args: args[1:], KwArgs: a.KwArgs})
			}
			if result.IsError() {
				return result
			}
			if result.IsTrue() == keep {
				out = append(out, each)
			}
		}
		return exec.AsValue(out)
	}
}

// testNames are the tests of gonja that look at their operands and nothing else.
var testNames = []string{
	"defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false",
	"mapping", "iterable", "sequence", "callable", "in", "odd", "even", "lower", "upper", "divisibleby",
	"eq", "equalto", "==", "ne", "!=", "gt", "greaterthan", ">", "ge", ">=", "lt", "lessthan", "<", "le", "<=",
}

func testSet() *exec.TestSet {
	set := map[string]exec.TestFunction{}
	for _, name := range testNames {
		if test, ok := builtins.Tests.Get(name); ok {
			set[name] = test
		}
	}
	return exec.NewTestSet(set)
}
