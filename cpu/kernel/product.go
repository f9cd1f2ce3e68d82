package kernel

import (
	"fmt"
	"unsafe"
)

// Product is Dst[t][r] = Σ_k X[t][k]·W[r][k] for the tokens t of a Batch.
// Ranges of rows may be computed in parallel, each with its own Scratch.
type Product struct {
	Dst Floats // [Batch.Tokens, W.Rows]
	W   Matrix // [W.Rows, Batch.Cols]
}

// Check panics if the shapes of p do not fit the batch, or the type of its
// matrix has no product.
func (p *Product) Check(b *Batch) {
	_, quantized := schemes[p.W.DType]
	if !quantized && (p.W.DType.Quantized() || dequantizers[p.W.DType] == nil) {
		panic(fmt.Sprintf("kernel: Product: no product with %v", p.W.DType))
	}
	if p.W.Cols != b.Cols {
		panic(fmt.Sprintf("kernel: Product: %v [%d %d] with activations of %d columns", p.W.DType, p.W.Rows, p.W.Cols, b.Cols))
	}
	if b.Tokens > 0 && len(p.Dst.Data) < (b.Tokens-1)*p.Dst.Stride+p.W.Rows {
		panic(fmt.Sprintf("kernel: Product: dst has %d elements for [%d %d] with stride %d", len(p.Dst.Data), b.Tokens, p.W.Rows, p.Dst.Stride))
	}
}

// Scratch is the working memory of one worker. The zero value is ready; it
// grows to what the products need and stays.
type Scratch struct {
	*unpacked
	sums []float32
}

// unpacked is the part of a Scratch whose size does not depend on the product.
type unpacked struct {
	rows  [panelRows]block
	panel panel
	out   [2][gemvRows]float32
}

// ready allocates the fixed part on first use.
func (s *Scratch) ready() {
	if s.unpacked == nil {
		memory := alignedFloats(int(unsafe.Sizeof(unpacked{}))/4 + 1)
		s.unpacked = (*unpacked)(unsafe.Pointer(&memory[0]))
	}
}

// floats is n floats of scratch, with any content.
func (s *Scratch) floats(n int) []float32 {
	if cap(s.sums) < n {
		s.sums = alignedFloats(n)
	}
	return s.sums[:n]
}

// alignedFloats is n floats from the start of a cache line on: a vector that
// crosses two lines takes twice as long to load.
func alignedFloats(n int) []float32 {
	f := make([]float32, n+15)
	return f[-(uintptr(unsafe.Pointer(&f[0]))/4)%16:][:n:n]
}

// Compute writes rows lo to hi-1 of p for all tokens of b, which has been
// prepared for W's type.
func (p *Product) Compute(b *Batch, s *Scratch, lo, hi int) {
	s.ready()
	current.compute(p, b, s, lo, hi)
}

// computeGo is the definition of Compute.
func computeGo(p *Product, b *Batch, s *Scratch, lo, hi int) {
	for r := lo; r < hi; r++ {
		if p.W.DType.Quantized() {
			computeRowGo(p, b, s, r)
			continue
		}
		for t := range b.Tokens {
			p.Dst.Data[t*p.Dst.Stride+r] = dotFloats(p.W.DType, p.W.Row(r), b.X.Row(t, b.Cols))
		}
	}
}

// computeRowGo computes one quantized row, unpacking each block once.
func computeRowGo(p *Product, b *Batch, s *Scratch, r int) {
	dt := p.W.DType
	row, scheme, form := p.W.Row(r), schemes[dt], scalingOf(dt)
	size := superLen / dt.BlockLen() * dt.BlockSize()
	for t := range b.Tokens {
		p.Dst.Data[t*p.Dst.Stride+r] = 0
	}
	for i := 0; i*size < len(row); i++ {
		expandSuper(dt, &s.rows[0], row[i*size:min((i+1)*size, len(row))])
		for t := range b.Tokens {
			acc := &p.Dst.Data[t*p.Dst.Stride+r]
			*acc = dotBlock(*acc, scheme, &s.rows[0], b.at(form, i, t))
		}
	}
}

// PartRows is how many rows a worker takes at a time: a multiple of what the loops take, large
// enough to amortize the cost of a part and small enough to balance the load.
func (p *Product) PartRows(b *Batch, workers int) int {
	unit, limit := 4*gemvRows, 1024
	if b.Tokens > gemvTokens {
		unit, limit = panelRows, partPanels*panelRows
	}
	rows := (p.W.Rows + 4*workers - 1) / (4 * workers)
	return min(max((rows+unit-1)/unit*unit, unit), limit)
}
