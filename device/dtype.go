package device

import "fmt"

// DType is the element type of a tensor. The quantized types store a row as blocks of
// [DType.BlockLen] elements in [DType.BlockSize] bytes, in GGUF's layout.
type DType uint8

// The element types. Quantized types keep the names that GGUF gives them.
const (
	F32 DType = iota + 1
	F16
	BF16
	I32
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ4_NL
	IQ4_XS
	numDTypes
)

// dtypes holds, for each type, its name and the elements and bytes of a block.
var dtypes = [numDTypes]struct {
	name      string
	len, size int
}{
	0:      {"none", 1, 0},
	F32:    {"F32", 1, 4},
	F16:    {"F16", 1, 2},
	BF16:   {"BF16", 1, 2},
	I32:    {"I32", 1, 4},
	Q4_0:   {"Q4_0", 32, 18},
	Q4_1:   {"Q4_1", 32, 20},
	Q5_0:   {"Q5_0", 32, 22},
	Q5_1:   {"Q5_1", 32, 24},
	Q8_0:   {"Q8_0", 32, 34},
	Q2_K:   {"Q2_K", 256, 84},
	Q3_K:   {"Q3_K", 256, 110},
	Q4_K:   {"Q4_K", 256, 144},
	Q5_K:   {"Q5_K", 256, 176},
	Q6_K:   {"Q6_K", 256, 210},
	IQ4_NL: {"IQ4_NL", 32, 18},
	IQ4_XS: {"IQ4_XS", 256, 136},
}

// String returns the name that GGUF gives the type, for example "Q4_K".
func (t DType) String() string {
	if t >= numDTypes {
		return fmt.Sprintf("DType(%d)", uint8(t))
	}
	return dtypes[t].name
}

// BlockLen is the number of elements in a block: 1 for plain types.
func (t DType) BlockLen() int { return dtypes[t].len }

// BlockSize is the number of bytes in a block.
func (t DType) BlockSize() int { return dtypes[t].size }

// Quantized reports whether elements are stored in blocks with shared scales.
func (t DType) Quantized() bool { return dtypes[t].len > 1 }

// RowSize is the number of bytes of a row of n elements; n is a multiple of
// BlockLen.
func (t DType) RowSize(n int) int {
	d := dtypes[t]
	if n%d.len != 0 {
		panic(fmt.Sprintf("device: %v: row of %d elements, want a multiple of %d", t, n, d.len))
	}
	return n / d.len * d.size
}

// IsWeight reports whether a weight may have the type. I32 is for ids, positions and lists;
// [MatMul] does not take it.
func (t DType) IsWeight() bool { return t != 0 && t != I32 && t < numDTypes }

// DTypes lists every element type, in declaration order.
func DTypes() []DType {
	all := make([]DType, 0, numDTypes-1)
	for t := F32; t < numDTypes; t++ {
		all = append(all, t)
	}
	return all
}
