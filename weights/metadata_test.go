package weights

import (
	"fmt"
	"math"
	"reflect"
	"testing"
)

// values has a value of each type, and what each getter makes of it; a getter
// that is not named must refuse it.
var values = []struct {
	set   any
	found string // how errors describe it
	want  map[string]any
}{
	{uint8(200), "u8 200", map[string]any{"Uint": 200, "Int": 200, "Float": 200.0}},
	{int8(-5), "i8 -5", map[string]any{"Int": -5, "Float": -5.0}},
	{uint16(60000), "u16 60000", map[string]any{"Uint": 60000, "Int": 60000, "Float": 60000.0}},
	{int16(-300), "i16 -300", map[string]any{"Int": -300, "Float": -300.0}},
	{uint32(4e9), "u32 4000000000", map[string]any{"Uint": int(4e9), "Int": int(4e9), "Float": 4e9}},
	{int32(-70000), "i32 -70000", map[string]any{"Int": -70000, "Float": -70000.0}},
	{int32(7), "i32 7", map[string]any{"Uint": 7, "Int": 7, "Float": 7.0}},
	{uint64(1 << 40), "u64 1099511627776", map[string]any{"Uint": 1 << 40, "Int": 1 << 40, "Float": float64(1 << 40)}},
	{uint64(1 << 63), "u64 9.22", map[string]any{"Float": float64(1 << 63)}},
	{int64(math.MinInt64), "i64 -9223372036854775808", map[string]any{"Int": math.MinInt64, "Float": float64(math.MinInt64)}},
	{float32(0.5), "f32 0.5", map[string]any{"Float": 0.5}},
	{1e300, "f64 1e+300", map[string]any{"Float": 1e300}},
	{true, "bool true", map[string]any{"Bool": true}},
	{false, "bool false", map[string]any{"Bool": false}},
	{"text", `string "text"`, map[string]any{"String": "text"}},
	{"", `string ""`, map[string]any{"String": ""}},
	{[]string{"a", ""}, "array of 2 string", map[string]any{"Strings": []string{"a", ""}}},
	{[]bool{true}, "array of 1 bool", nil},
	{[]uint8{0, 255}, "array of 2 u8", map[string]any{"Ints": []int{0, 255}, "Floats": []float64{0, 255}}},
	{[]int8{-1}, "array of 1 i8", map[string]any{"Ints": []int{-1}, "Floats": []float64{-1}}},
	{[]uint16{65535}, "array of 1 u16", map[string]any{"Ints": []int{65535}, "Floats": []float64{65535}}},
	{[]int16{-2}, "array of 1 i16", map[string]any{"Ints": []int{-2}, "Floats": []float64{-2}}},
	{[]uint32{1, 2}, "array of 2 u32", map[string]any{"Ints": []int{1, 2}, "Floats": []float64{1, 2}}},
	{[]int32{-1, 2}, "array of 2 i32", map[string]any{"Ints": []int{-1, 2}, "Floats": []float64{-1, 2}}},
	{[]uint64{3}, "array of 1 u64", map[string]any{"Ints": []int{3}, "Floats": []float64{3}}},
	{[]uint64{3, 1 << 63}, "array of 2 u64", map[string]any{"Floats": []float64{3, 1 << 63}}},
	{[]int64{-4, 4}, "array of 2 i64", map[string]any{"Ints": []int{-4, 4}, "Floats": []float64{-4, 4}}},
	{[]float32{0.25}, "array of 1 f32", map[string]any{"Floats": []float64{0.25}}},
	{[]float64{0.1, 2}, "array of 2 f64", map[string]any{"Floats": []float64{0.1, 2}}},
	{[]int32{}, "array of 0 i32", map[string]any{"Ints": []int{}, "Floats": []float64{}}},
	{7, "u32 7", map[string]any{"Uint": 7, "Int": 7, "Float": 7.0}},
	{-7, "i32 -7", map[string]any{"Int": -7, "Float": -7.0}},
	{1 << 33, "i64 8589934592", map[string]any{"Uint": 1 << 33, "Int": 1 << 33, "Float": float64(1 << 33)}},
	{[]int{1, math.MaxUint32}, "array of 2 u32", map[string]any{"Ints": []int{1, math.MaxUint32}, "Floats": []float64{1, math.MaxUint32}}},
	{[]int{}, "array of 0 i32", map[string]any{"Ints": []int{}, "Floats": []float64{}}},
	{[]int{1, -1}, "array of 2 i32", map[string]any{"Ints": []int{1, -1}, "Floats": []float64{1, -1}}},
	{[]int{1 << 32, -1}, "array of 2 i64", map[string]any{"Ints": []int{1 << 32, -1}, "Floats": []float64{1 << 32, -1}}},
}

// wants is what each getter says that it expects.
var wants = map[string]string{
	"Uint": "a non-negative integer", "Int": "an integer", "Float": "a number", "Bool": "a bool", "String": "a string",
	"Strings": "an array of strings", "Ints": "an array of integers", "Floats": "an array of numbers",
}

// call runs the getter of that name, as the "Or" form where there is a default.
func call(f *File, name, key string, def ...reflect.Value) (any, error) {
	if len(def) > 0 {
		name += "Or"
	}
	out := reflect.ValueOf(f).MethodByName(name).Call(append([]reflect.Value{reflect.ValueOf(key)}, def...))
	err, _ := out[1].Interface().(error)
	return out[0].Interface(), err
}

// TestValues reads every value with every getter, under keys with and without
// the architecture before them.
func TestValues(t *testing.T) {
	for _, prefix := range []string{"llama.", "general.", "other.", "tokenizer."} {
		w := new(Writer)
		w.Set("general.architecture", "llama")
		for i, v := range values {
			w.Set(fmt.Sprintf("%sv%d", prefix, i), v.set)
		}
		file, err := w.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse("values.gguf", file)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			key := fmt.Sprintf("%sv%d", prefix, i)
			for name := range wants {
				got, err := call(f, name, key)
				if want, ok := v.want[name]; ok {
					if err != nil || !reflect.DeepEqual(got, want) {
						t.Errorf("%s of %T %v: %v, %v, want %v", name, v.set, v.set, got, err, want)
					}
					continue
				}
				wantError(t, err, "values.gguf", fmt.Sprintf("%q", key), v.found, "want "+wants[name])
				_, err = call(f, name, key, reflect.Zero(reflect.TypeOf(got))) // a default hides no wrong type
				wantError(t, err, v.found, "want "+wants[name])
			}
		}
	}
}

// TestMissingKey asks for a key that is not there.
func TestMissingKey(t *testing.T) {
	f, err := Parse("none.gguf", *head(0, 1).key("a.b", 5))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Architecture()
	wantError(t, err, "none.gguf", `no key "general.architecture"`, "among its 1 keys", "want a string")
	for name, def := range map[string]any{
		"Uint": 3, "Int": -3, "Float": 0.5, "Bool": true, "String": "x",
		"Strings": []string{"y"}, "Ints": []int{1}, "Floats": []float64{2},
	} {
		_, err := call(f, name, "c.d")
		wantError(t, err, "none.gguf", `no key "c.d"`, "want "+wants[name])
		if got, err := call(f, name, "c.d", reflect.ValueOf(def)); err != nil || !reflect.DeepEqual(got, def) {
			t.Errorf("%sOr: %v, %v, want %v", name, got, err, def)
		}
	}
	if f.Has("c.d") || !f.Has("a.b") || !reflect.DeepEqual(f.Keys(), []string{"a.b"}) {
		t.Error("Has or Keys is wrong")
	}
}

// TestParameterCount reads the file's value, which fs/ggml replaces by its own
// count.
func TestParameterCount(t *testing.T) {
	const key = "general.parameter_count"
	w := new(Writer)
	w.AddF32("t", []float32{1, 2}, 2)
	file, _ := w.Bytes()
	f, err := Parse("count.gguf", file)
	if err != nil {
		t.Fatal(err)
	}
	if f.Has(key) || len(f.Keys()) != 0 {
		t.Errorf("keys %v, want none", f.Keys())
	}
	w.Set(key, 123)
	file, _ = w.Bytes()
	if f, err = Parse("count.gguf", file); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Uint(key); n != 123 || err != nil {
		t.Errorf("%d, %v, want 123", n, err)
	}
}
