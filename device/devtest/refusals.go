package devtest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// refusals: the first call of every operation and rule, with one operand or parameter changed, is
// refused in the words of the contract or accepted; a runtime error is neither. What no call can
// accept must be refused.
func (s *calls) refusals(t *testing.T, d device.Device) {
	seen := map[string]bool{}
	for _, c := range append(s.first, shapeCases()...) {
		name, _, _ := strings.Cut(strings.TrimPrefix(c.name, "op="), "/heads=")
		if seen[name] {
			continue
		}
		seen[name] = true
		b := newBed(t, d)
		c.make(b).step(&altering{Queue: d.Queue(), t: t, seen: seen})
		b.sync()
	}
}

// altering is a queue that checks altered copies of the first call of each name.
type altering struct {
	device.Queue
	t    *testing.T
	seen map[string]bool
}

// Do checks every alteration of a call, and runs the call as it is.
func (q *altering) Do(c device.Call) {
	if name := device.Name(c); !q.seen["checked "+name] {
		q.seen["checked "+name] = true
		var a device.Access
		c.Access(&a)
		q.alter(c, name, a, reflect.ValueOf(c).Elem())
	}
	q.Queue.Do(c)
}

// alter changes every field of v, a part of c, one at a time.
func (q *altering) alter(c device.Call, path string, a device.Access, v reflect.Value) {
	q.t.Helper()
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	defer v.Set(old)
	try := func(x any, what string, must bool) {
		v.Set(reflect.ValueOf(x).Convert(v.Type()))
		switch err, refused := refusal(c); {
		case refused && !strings.HasPrefix(err, "device: "):
			q.t.Errorf("%s %s: Check panics with %s, want words of the contract", path, what, err)
		case must && !refused:
			q.t.Errorf("%s %s: Check accepts it", path, what)
		}
	}
	if x, ok := v.Interface().(device.Tensor); ok {
		unused := strings.HasPrefix(path, "Discard") || strings.HasPrefix(path, "ReuseSelection.Plan")
		operand := touches(append(a.Reads, a.Writes...), x) && !unused
		for what, y := range alteredTensors(x) {
			try(y, what, operand && what == "I32 [1 1 1 1]")
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				q.alter(c, path+"."+f.Name, a, v.Field(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			q.alter(c, fmt.Sprintf("%s[%d]", path, i), a, v.Index(i))
		}
	case reflect.Int:
		for _, n := range []int{-1 << 62, -1, 0, 1 << 40} {
			try(n, fmt.Sprintf("= %d", n), false)
		}
	case reflect.Uint8:
		try(99, "= 99", strings.HasSuffix(path, ".Rule"))
	}
}

// alteredTensors are an absent tensor and views of the memory of x in other types and shapes.
func alteredTensors(x device.Tensor) map[string]device.Tensor {
	if x.Absent() {
		return nil
	}
	all := map[string]device.Tensor{"absent": {}, "flat": x.Reshape(x.Len()), "empty": x.Rows(0, 0)}
	if dims := x.Rank(); x.Len() > 0 {
		all["I32 [1 1 1 1]"] = device.NewTensor(x.Memory(), x.Offset(), device.I32, 1, 1, 1, 1)
		for i := range dims {
			shape := make([]int, dims)
			for j := range shape {
				shape[j] = x.Dim(j)
			}
			shape[i] = 0
			all[fmt.Sprintf("without dimension %d", i)] = device.NewTensor(x.Memory(), x.Offset(), x.DType, shape...)
		}
	}
	return all
}

// refusal is what the check of a call panics with.
func refusal(c device.Call) (words string, refused bool) {
	defer func() {
		if r := recover(); r != nil {
			words, refused = fmt.Sprint(r), true
		}
	}()
	c.Check()
	return "", false
}
