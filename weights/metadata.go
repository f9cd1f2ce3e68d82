package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/ollama/ollama/fs/ggml"

	"github.com/gollm/gollm/internal/quote"
)

// Strings and bools come from fs/ggml. Numbers are read here, from where the
// guard found them, because the getters of fs/ggml return a default for every
// type but one, and no getter reads arrays of other types than i32, u32 and f32.

// Architecture is the value of "general.architecture", for example "llama".
func (f *File) Architecture() (string, error) { return f.String("general.architecture") }

// Keys lists the metadata keys in file order.
func (f *File) Keys() []string { return slices.Clone(f.parts[0].head.keys) }

// Has reports whether the metadata has the key.
func (f *File) Has(key string) bool {
	_, ok := f.parts[0].head.values[key]
	return ok
}

// Uint is a number that cannot be negative, such as a count or a length, of
// any integer type. It is an int because that is what Go counts with.
func (f *File) Uint(key string) (int, error) { return get(f, key, "a non-negative integer", uintAt) }

// UintOr is [File.Uint], or def where the key is missing.
func (f *File) UintOr(key string, def int) (int, error) { return getOr(f, key, def, f.Uint) }

// Int is a number of any integer type.
func (f *File) Int(key string) (int, error) { return get(f, key, "an integer", intAt) }

// IntOr is [File.Int], or def where the key is missing.
func (f *File) IntOr(key string, def int) (int, error) { return getOr(f, key, def, f.Int) }

// Float is a number of any float or integer type.
func (f *File) Float(key string) (float64, error) { return get(f, key, "a number", floatAt) }

// FloatOr is [File.Float], or def where the key is missing.
func (f *File) FloatOr(key string, def float64) (float64, error) { return getOr(f, key, def, f.Float) }

// Bool is a bool.
func (f *File) Bool(key string) (bool, error) { return get(f, key, "a bool", boolAt) }

// BoolOr is [File.Bool], or def where the key is missing.
func (f *File) BoolOr(key string, def bool) (bool, error) { return getOr(f, key, def, f.Bool) }

// String is a string.
func (f *File) String(key string) (string, error) { return get(f, key, "a string", stringAt) }

// StringOr is [File.String], or def where the key is missing.
func (f *File) StringOr(key, def string) (string, error) { return getOr(f, key, def, f.String) }

// Strings is an array of strings. The caller must not change it.
func (f *File) Strings(key string) ([]string, error) {
	return get(f, key, "an array of strings", stringsAt)
}

// StringsOr is [File.Strings], or def where the key is missing.
func (f *File) StringsOr(key string, def []string) ([]string, error) {
	return getOr(f, key, def, f.Strings)
}

// Ints is an array of any integer type.
func (f *File) Ints(key string) ([]int, error) {
	return get(f, key, "an array of integers", each(intAt))
}

// IntsOr is [File.Ints], or def where the key is missing.
func (f *File) IntsOr(key string, def []int) ([]int, error) { return getOr(f, key, def, f.Ints) }

// Floats is an array of any float or integer type.
func (f *File) Floats(key string) ([]float64, error) {
	return get(f, key, "an array of numbers", each(floatAt))
}

// FloatsOr is [File.Floats], or def where the key is missing.
func (f *File) FloatsOr(key string, def []float64) ([]float64, error) {
	return getOr(f, key, def, f.Floats)
}

// get reads the value of key with read, which reports whether the value is what
// want says.
func get[T any](f *File, key, want string, read func(*part, string, value) (T, bool)) (T, error) {
	p := f.parts[0]
	v, ok := p.head.values[key]
	if !ok {
		var none T
		return none, p.errorf("no key %s among its %d keys, want %s; the model is of another architecture or incomplete",
			quote.Short(key), len(p.head.keys), want)
	}
	got, ok := read(p, key, v)
	if !ok {
		var none T
		return none, p.errorf("key %s is %s, want %s", quote.Short(key), p.describe(key, v), want)
	}
	return got, nil
}

// getOr reads the value of key with read where there is one.
func getOr[T any](f *File, key string, def T, read func(string) (T, error)) (T, error) {
	if !f.Has(key) {
		return def, nil
	}
	return read(key)
}

// describe is the type of a value and, of a scalar, the value, for errors.
func (p *part) describe(key string, v value) string {
	if n, ok := intAt(p, key, v); ok {
		return fmt.Sprintf("%v %d", v, n)
	}
	if x, ok := floatAt(p, key, v); ok {
		return fmt.Sprintf("%v %v", v, x)
	}
	if b, ok := boolAt(p, key, v); ok {
		return fmt.Sprintf("%v %v", v, b)
	}
	if s, ok := stringAt(p, key, v); ok {
		return fmt.Sprintf("%v %s", v, quote.Short(s))
	}
	return v.String()
}

// intAt reads a whole number that an int can hold.
func intAt(p *part, _ string, v value) (int, bool) {
	var n int64
	switch b := p.data[v.at:]; v.typ {
	case typeU8:
		n = int64(b[0])
	case typeI8:
		n = int64(int8(b[0]))
	case typeU16:
		n = int64(binary.LittleEndian.Uint16(b))
	case typeI16:
		n = int64(int16(binary.LittleEndian.Uint16(b)))
	case typeU32:
		n = int64(binary.LittleEndian.Uint32(b))
	case typeI32:
		n = int64(int32(binary.LittleEndian.Uint32(b)))
	case typeI64, typeU64:
		n = int64(binary.LittleEndian.Uint64(b))
	default:
		return 0, false
	}
	return int(n), int64(int(n)) == n && (v.typ != typeU64 || n >= 0)
}

// uintAt reads a whole number that is not negative.
func uintAt(p *part, key string, v value) (int, bool) {
	n, ok := intAt(p, key, v)
	return n, ok && n >= 0
}

// floatAt reads a number.
func floatAt(p *part, key string, v value) (float64, bool) {
	switch b := p.data[v.at:]; v.typ {
	case typeF32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	case typeF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	case typeU64:
		return float64(binary.LittleEndian.Uint64(b)), true
	}
	n, ok := intAt(p, key, v)
	return float64(n), ok
}

// each reads an array whose elements read reads.
func each[T any](read func(*part, string, value) (T, bool)) func(*part, string, value) ([]T, bool) {
	return func(p *part, key string, v value) ([]T, bool) {
		if v.typ != typeArray || v.elem == typeString {
			return nil, false
		}
		all := make([]T, v.n)
		for i := range all {
			var ok bool
			at := v.at + i*int(v.elem.minSize())
			if all[i], ok = read(p, key, value{typ: v.elem, at: at}); !ok {
				return nil, false
			}
		}
		return all, true
	}
}

func boolAt(p *part, key string, v value) (bool, bool) {
	b, ok := p.kv.Value(key).(bool)
	return b, ok && v.typ == typeBool
}

func stringAt(p *part, key string, v value) (string, bool) {
	s, ok := p.kv.Value(key).(string)
	return s, ok && v.typ == typeString
}

func stringsAt(p *part, key string, v value) ([]string, bool) {
	if v.typ != typeArray || v.elem != typeString {
		return nil, false
	}
	// The getter prepends the architecture to keys that do not begin with
	// "general." or "tokenizer.", so the array is handed to it under such a key.
	const array = "general.array"
	return ggml.KV{array: p.kv.Value(key)}.Strings(array), true
}
