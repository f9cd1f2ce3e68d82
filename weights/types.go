package weights

import (
	"fmt"
	"strings"

	"github.com/gollm/gollm/device"
)

// tensorTypes maps GGUF's numbers of the tensor types whose layout gollm knows.
var tensorTypes = map[uint32]device.DType{
	0: device.F32, 1: device.F16, 30: device.BF16, 26: device.I32,
	2: device.Q4_0, 3: device.Q4_1, 6: device.Q5_0, 7: device.Q5_1, 8: device.Q8_0,
	10: device.Q2_K, 11: device.Q3_K, 12: device.Q4_K, 13: device.Q5_K, 14: device.Q6_K,
	20: device.IQ4_NL, 23: device.IQ4_XS,
}

// otherTypes names GGUF's other tensor types, for lists and errors.
var otherTypes = map[uint32]string{
	4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
	21: "IQ3_S", 22: "IQ2_S", 24: "I8", 25: "I16", 27: "I64", 28: "F64", 29: "IQ1_M",
	31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0",
	36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 39: "MXFP4", 40: "NVFP4",
}

// foreignName is the name of a tensor type whose layout gollm does not know, by its
// number in GGUF.
func foreignName(n uint32) string {
	if name, ok := otherTypes[n]; ok {
		return name
	}
	return fmt.Sprintf("type %d", n)
}

// unsupported is the error of a tensor of a type that no weight may have.
func (t Tensor) unsupported() error {
	name := t.Type()
	if _, known := otherTypes[t.kind]; t.DType == 0 && !known {
		name = "unknown to gollm"
	}
	var supported []string
	for _, dt := range device.DTypes() {
		if dt.IsWeight() {
			supported = append(supported, dt.String())
		}
	}
	return fmt.Errorf("type %d (%s) is not supported, want one of %s; get the model in one of these",
		t.kind, name, strings.Join(supported, " "))
}

// typeNumber is the number of t in GGUF.
func typeNumber(t device.DType) uint32 {
	for n, u := range tensorTypes {
		if u == t {
			return n
		}
	}
	panic(fmt.Sprintf("weights: no number for %v", t))
}

// valueType is the type of a metadata value; its numbers are GGUF's.
type valueType uint32

const (
	typeU8 valueType = iota
	typeI8
	typeU16
	typeI16
	typeU32
	typeI32
	typeF32
	typeBool
	typeString
	typeArray
	typeU64
	typeI64
	typeF64
	numValueTypes
)

// valueTypes holds, for each type, its name and its bytes. A string takes a
// length of 8 bytes at least, an array a type and a length.
var valueTypes = [numValueTypes]struct {
	name string
	size int
}{
	typeU8: {"u8", 1}, typeI8: {"i8", 1}, typeU16: {"u16", 2}, typeI16: {"i16", 2},
	typeU32: {"u32", 4}, typeI32: {"i32", 4}, typeF32: {"f32", 4}, typeBool: {"bool", 1},
	typeString: {"string", 8}, typeArray: {"array", 12},
	typeU64: {"u64", 8}, typeI64: {"i64", 8}, typeF64: {"f64", 8},
}

// String returns the type's name, for example "u32".
func (t valueType) String() string {
	if t >= numValueTypes {
		return fmt.Sprintf("type %d", uint32(t))
	}
	return valueTypes[t].name
}

// minSize is the number of bytes that a value of the type takes at least.
func (t valueType) minSize() uint64 { return uint64(valueTypes[t].size) }
