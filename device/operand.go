package device

import (
	"iter"
	"reflect"
)

// Operands yields the tensors of a call that are not absent, with the names of their fields
// and in their order, for reports. A [KV] stands for its K (V has the same shape, Pages and Len
// are small), a [List] for its Index.
func Operands(c Call) iter.Seq2[string, Tensor] {
	return func(yield func(string, Tensor) bool) { operands("", reflect.ValueOf(c), yield) }
}

// operands returns false when yield did.
func operands(name string, v reflect.Value, yield func(string, Tensor) bool) bool {
	switch x := v.Interface().(type) {
	case Tensor:
		return x.Absent() || yield(name, x)
	case KV:
		return operands(name, reflect.ValueOf(x.K), yield)
	case List:
		return operands(name, reflect.ValueOf(x.Index), yield)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || operands(name, v.Elem(), yield)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !operands(f.Name, v.Field(i), yield) {
				return false
			}
		}
	}
	return true
}
