package chat

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// Bounds on what one rendering may do. Sizes are in bytes, counting 16 for a value
// of any kind besides the bytes of a string.
const (
	maxTime    = 2 * time.Second
	maxSteps   = 100_000  // loop rounds, tags, operators, calls
	maxItems   = 20_000   // rounds of one loop, numbers of one range
	maxPairs   = 2_000    // entries of a dictionary that is looped over
	maxCalls   = 32       // macros inside macros
	maxDepth   = 64       // values inside values
	valueBytes = 1 << 20  // one value, and 4 times the size of the input
	totalBytes = 32 << 20 // all values together, and 32 times the size of the input
)

// fence counts what one rendering does and keeps the first thing that went wrong.
type fence struct {
	ctx      context.Context
	limit    time.Duration
	deadline time.Time
	steps    int
	calls    int
	made     int // size of all values so far
	maxValue int
	maxMade  int
	err      error
}

// newFence begins a rendering of an input of some size, in bytes.
func newFence(ctx context.Context, input int, limit time.Duration) *fence {
	return &fence{
		ctx:      ctx,
		limit:    limit,
		deadline: time.Now().Add(limit),
		maxValue: 4*input + valueBytes,
		maxMade:  32*input + totalBytes,
	}
}

// fail keeps the first error and returns err as a value, which ends the rendering.
func (f *fence) fail(err error) *exec.Value {
	if f.err == nil {
		f.err = err
	}
	return exec.AsValue(err)
}

func (f *fence) failf(format string, args ...any) *exec.Value {
	return f.fail(fmt.Errorf(format, args...))
}

// step counts one step that makes size bytes.
func (f *fence) step(size int) error {
	f.steps++
	f.made += size
	var err error
	switch {
	case f.err != nil:
		return f.err
	case f.steps > maxSteps:
		err = fmt.Errorf("the template takes more than %d steps", maxSteps)
	case f.made > f.maxMade:
		err = fmt.Errorf("the template makes more than %d bytes", f.maxMade)
	case f.ctx.Err() != nil:
		err = f.ctx.Err()
	case time.Now().After(f.deadline):
		err = fmt.Errorf("the template takes longer than %v", f.limit)
	}
	if err != nil {
		f.fail(err)
	}
	return err
}

// room refuses a value of size bytes that is yet to be made.
func (f *fence) room(size int) error {
	if size < 0 || size > f.maxValue {
		err := fmt.Errorf("the template makes a value of more than %d bytes", f.maxValue)
		f.fail(err)
		return err
	}
	return f.step(0)
}

// check passes a new value on if it is within bounds.
func (f *fence) check(v *exec.Value) *exec.Value {
	if v.IsError() {
		return v
	}
	size, err := f.measure(v.Val, 0)
	if err == nil {
		err = f.step(size)
	}
	if err != nil {
		return f.fail(err)
	}
	return v
}

// value is check for any Go value.
func (f *fence) value(v any) *exec.Value { return f.check(exec.AsValue(v)) }

// namespace is what namespace() returns: the one kind of value that changes.
type namespace map[string]any

var (
	errTooDeep   = fmt.Errorf("the template puts values more than %d deep into each other", maxDepth)
	errNamespace = errors.New("the template puts a namespace into another value")
)

// measure returns the size of a value as a tree: what is reached twice counts twice.
func (f *fence) measure(v reflect.Value, depth int) (size int, err error) {
	if depth > maxDepth {
		return 0, errTooDeep
	}
	for v.IsValid() && (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) {
		if inner, ok := v.Interface().(*exec.Value); ok && inner != nil {
			return f.measure(inner.Val, depth)
		}
		v = v.Elem()
	}
	if !v.IsValid() {
		return 16, nil
	}
	size = 16
	add := func(part reflect.Value) bool {
		var n int
		n, err = f.measure(part, depth+1)
		size += n
		if err == nil && size > f.maxValue {
			err = fmt.Errorf("the template makes a value of more than %d bytes", f.maxValue)
		}
		return err == nil
	}
	switch v.Kind() {
	case reflect.String:
		size += v.Len()
		if size > f.maxValue {
			err = fmt.Errorf("the template makes a value of more than %d bytes", f.maxValue)
		}
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && add(v.Index(i)); i++ {
		}
	case reflect.Map:
		if _, ok := v.Interface().(namespace); ok && depth > 0 {
			return size, errNamespace
		}
		for it := v.MapRange(); it.Next() && add(it.Key()) && add(it.Value()); {
		}
	case reflect.Struct:
		if d, ok := v.Interface().(exec.Dict); ok {
			for i := 0; i < len(d.Pairs) && add(reflect.ValueOf(d.Pairs[i].Key)) && add(reflect.ValueOf(d.Pairs[i].Value)); i++ {
			}
		}
	}
	return size, err
}

// loop passes on what a for tag goes through, if it is short enough.
func (f *fence) loop(v *exec.Value) *exec.Value {
	if v.IsError() {
		return v
	}
	items, limit := 0, maxItems
	switch {
	case v.IsNil():
		return exec.AsValue([]any{})
	case isDict(v):
		items, limit = v.Len(), maxPairs
	case v.IsList():
		items = v.Len()
	case v.IsString():
		chars := []rune(v.String())
		items = len(chars)
		parts := make([]string, 0, min(items, maxItems))
		for _, c := range chars[:min(items, maxItems)] {
			parts = append(parts, string(c))
		}
		v = exec.AsValue(parts)
	case v.IsDict():
		items = v.Len()
	default:
		return f.failf("the template loops over %s", kindOf(v))
	}
	if items > limit {
		return f.failf("the template loops over %d items, at most %d are supported", items, limit)
	}
	if err := f.step(64 * items); err != nil {
		return exec.AsValue(err)
	}
	return v
}

// isDict reports whether v is a dictionary of gonja, not a Go map.
func isDict(v *exec.Value) bool {
	_, ok := v.Interface().(*exec.Dict)
	return ok
}

// kindOf names the kind of a value for an error.
func kindOf(v *exec.Value) string {
	switch {
	case v.IsNil():
		return "an undefined value"
	case v.IsString():
		return "a string"
	case v.IsBool():
		return "a boolean"
	case v.IsNumber():
		return "a number"
	case v.IsList():
		return "a list"
	case v.IsDict():
		return "a mapping"
	}
	return "an object"
}
