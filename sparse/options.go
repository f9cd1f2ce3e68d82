package sparse

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gollm/gollm/device"
)

// Options of a method are a struct whose fields carry their names and meaning
// in tags, with the defaults as its value in the method's table entry:
//
//	Density float64 `opt:"density" unit:"share of blocks" doc:"how much each row reads"`
//	Causal  string  `opt:"causal" oneof:"tri none" doc:"mask of the walk"`
//
// A struct may have a method check() error for what tags cannot say, and embed
// the options of another method as its own.
//
// A field of type device.Amount is given as a count ("128") or as a share of
// the positions that the row sees ("0.05").
type checker interface{ check() error }

// requirer is options of which one is required: missing reports that it was not given.
type requirer interface{ missing() error }

// scorer is options that name a method of the select stage to run before their own:
// its text, "" for none, and whether it must select in prefill too.
type scorer interface {
	scorer() (text string, prefill bool)
}

// wholer is options that decide whether a prompt must be prefilled in one pass.
type wholer interface{ whole() bool }

// amountText is the text form of a [device.Amount]: a whole number is a count,
// any other a share.
func amountText(a device.Amount) string {
	if a.Share > 0 {
		s := strconv.FormatFloat(a.Share, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	}
	return strconv.Itoa(a.Count)
}

// parseAmount reads the text form.
func parseAmount(text string) (device.Amount, error) {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return device.Amount{Count: n}, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return device.Amount{}, fmt.Errorf("want a count such as 128 or a share such as 0.05")
	}
	if x == 0 {
		return device.Amount{}, nil
	}
	return device.Amount{Share: x}, nil
}

// Option describes one option of a method.
type Option struct {
	Name    string
	Default string
	Unit    string   // empty: a plain number or word
	Values  []string // the words allowed; nil: any of the type
	Doc     string
}

// field is an option's field of a struct of options.
type field struct {
	tag   reflect.StructTag
	value reflect.Value
}

// fields lists the options' fields, those of embedded structs in their place.
func fields(v reflect.Value) []field {
	var list []field
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Anonymous {
			list = append(list, fields(v.Field(i))...)
		} else {
			list = append(list, field{f.Tag, v.Field(i)})
		}
	}
	return list
}

// describe lists the options of a struct.
func describe(opts any) []Option {
	var list []Option
	for _, f := range fields(reflect.ValueOf(opts)) {
		list = append(list, Option{
			Name: f.tag.Get("opt"), Default: format(f.value), Unit: f.tag.Get("unit"),
			Values: strings.Fields(f.tag.Get("oneof")), Doc: f.tag.Get("doc"),
		})
	}
	return list
}

// format is the text of an option's value.
func format(v reflect.Value) string {
	if a, ok := v.Interface().(device.Amount); ok {
		return amountText(a)
	}
	return fmt.Sprint(v.Interface())
}

// with is a copy of opts with options "name=value" set.
func with(opts any, settings []string) (any, error) {
	v := reflect.New(reflect.TypeOf(opts)).Elem()
	v.Set(reflect.ValueOf(opts))
	seen := map[string]bool{}
	for _, s := range settings {
		name, text, ok := strings.Cut(s, "=")
		name, text = strings.TrimSpace(name), strings.TrimSpace(text)
		if !ok || text == "" {
			return nil, fmt.Errorf("option %q: want name=value", s)
		}
		if seen[name] {
			return nil, fmt.Errorf("option %s is given twice", name)
		}
		seen[name] = true
		if err := set(v, name, text); err != nil {
			return nil, err
		}
	}
	if c, ok := v.Interface().(checker); ok {
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	return v.Interface(), nil
}

// set parses one value into the field of that option name.
func set(v reflect.Value, name, text string) error {
	for _, f := range fields(v) {
		if f.tag.Get("opt") != name {
			continue
		}
		if words := strings.Fields(f.tag.Get("oneof")); len(words) > 0 && !slices.Contains(words, text) {
			return fmt.Errorf("option %s: %q, want one of: %s", name, text, strings.Join(words, ", "))
		}
		if err := parseInto(f.value, text); err != nil {
			return fmt.Errorf("option %s: %q: %w", name, text, err)
		}
		return nil
	}
	var names []string
	for _, o := range describe(v.Interface()) {
		names = append(names, o.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("option %q: this method has no options", name)
	}
	return fmt.Errorf("option %q is unknown; it has: %s", name, strings.Join(names, ", "))
}

// parseInto reads text as the type of a field.
func parseInto(f reflect.Value, text string) error {
	switch f.Interface().(type) {
	case device.Amount:
		a, err := parseAmount(text)
		f.Set(reflect.ValueOf(a))
		return err
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("want a whole number")
		}
		f.SetInt(int64(n))
	case float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) {
			return fmt.Errorf("want a number")
		}
		f.SetFloat(x)
	case bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("want true or false")
		}
		f.SetBool(b)
	case string:
		f.SetString(text)
	default:
		panic(fmt.Sprintf("sparse: an option of type %v", f.Type()))
	}
	return nil
}

// changed lists the options that differ from the defaults, as "name=value".
func changed(opts, defaults any) []string {
	given, normal := describe(opts), describe(defaults)
	var list []string
	for i := range given {
		if given[i].Default != normal[i].Default {
			list = append(list, given[i].Name+"="+given[i].Default)
		}
	}
	return list
}

// atLeast checks that an option is lo or more.
func atLeast(name string, v, lo int) error {
	if v < lo {
		return fmt.Errorf("option %s: %d, want at least %d", name, v, lo)
	}
	return nil
}

// between checks that an option is lo to hi.
func between(name string, v, lo, hi int) error {
	if v < lo || v > hi {
		return fmt.Errorf("option %s: %d, want %d to %d", name, v, lo, hi)
	}
	return nil
}
