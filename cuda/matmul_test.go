//go:build cuda || cudaemu

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// gemmBound is the error of a GEMM relative to a sum of k products with random signs: activations
// and weights are rounded to f16, by 2⁻¹¹ of each.
const gemmBound = 2e-3

// gemmTypes has a type for each kernel of to_f16.cu.
var gemmTypes = []device.DType{device.F16, device.BF16, device.Q4_0, device.Q8_0, device.Q4_K, device.Q5_K, device.Q6_K, device.Q5_1}

// TestGEMM compares products with f16 operands with the reference kernel, matmul.
func TestGEMM(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	for _, dt := range gemmTypes {
		for _, s := range [][3]int{{64, 1, 256}, {65, 100, 512}, {129, 131, 256}, {128, 128, 1024}} {
			rows, n, k := s[0], s[1], s[2]
			t.Run(fmt.Sprintf("type=%v/rows=%d/n=%d/k=%d", dt, rows, n, k), func(t *testing.T) {
				compareProduct(t, d, dt, [3]int{rows, n, k}, gemmBound, d.ops.queued)
			})
		}
	}
}

// TestOwnGEMM compares our own GEMM kernels with it, with rows and columns that fill no tile.
func TestOwnGEMM(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	for _, wgmma := range []bool{false, true} {
		if wgmma && !d.drv.hasWGMMA() {
			continue
		}
		for _, s := range [][3]int{{1, 1, 64}, {130, 260, 320}, {257, 129, 640}} {
			rows, n, k := s[0], s[1], s[2]
			t.Run(fmt.Sprintf("wgmma=%v/rows=%d/n=%d/k=%d", wgmma, rows, n, k), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(9, 10))
				x, w, half := alloc(t, d, device.F32, rows, k), alloc(t, d, device.F16, n, k), alloc(t, d, device.F16, rows, k)
				d.Write(x, normal(rng, rows*k))
				d.Write(w, randomMatrix(rng, device.F16, n, k))
				got, want := alloc(t, d, device.F32, rows, n), alloc(t, d, device.F32, rows, n)
				d.ops.toF16(d.address(half), x)
				d.ops.ownGEMM(wgmma, d.address(got), d.address(half), d.address(w), rows, n, k, n, false)
				d.ops.launch("matmul").tensor(want).tensor(x).tensor(w).int(int(device.F16), rows, n, k, device.F16.RowSize(k)).
					run(blocks{ceil(n, 8), rows, 1}, 256)
				compare(t, read(t, d, got), read(t, d, want), gemmBound)
			})
		}
	}
}

// TestFusedGEMM compares GEMMs with a fused norm, SwiGLU or add with the calls one by one. A
// norm's sums are in another order.
func TestFusedGEMM(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	const rows, n, k = 70, 130, 320
	rng := rand.New(rand.NewPCG(13, 14))
	f := func(dims ...int) device.Tensor {
		x := alloc(t, d, device.F32, dims...)
		d.Write(x, normal(rng, x.Len()))
		return x
	}
	x, scratch, scale := f(rows, k), f(rows, k), fusedNorm{W: f(k), Eps: 1e-5}
	for _, dt := range []device.DType{device.F16, device.Q8_0} {
		w := []device.Tensor{alloc(t, d, dt, n, k), alloc(t, d, dt, n/2, k)}
		for _, w := range w {
			d.Write(w, randomMatrix(rng, dt, w.Dim(0), k))
		}
		got, want := []device.Tensor{f(rows, n), f(rows, n/2)}, []device.Tensor{f(rows, n), f(rows, n/2)}
		device.Do(d.ops, device.RMSNorm{Dst: scratch, X: x, W: scale.W, Eps: scale.Eps})
		d.ops.Flush()
		d.ops.products(want, scratch, w)
		if !d.ops.gemmNorm(got, x, scale, w) {
			t.Fatalf("%v: the norm and its products are not fused", dt)
		}
		for i := range got {
			compare(t, read(t, d, got[i]), read(t, d, want[i]), gemmBound)
		}
		product := f(rows, n)
		device.Do(d.ops, device.MatMul{Dst: product, X: scratch, W: w[0]})
		device.Do(d.ops, device.Copy{Dst: want[0], Src: got[0]})
		device.Do(d.ops, device.Add{Dst: want[0], X: product})
		if !d.ops.gemmAdd(got[0], scratch, w[0]) {
			t.Fatalf("%v: the product and the add are not fused", dt)
		}
		compare(t, read(t, d, got[0]), read(t, d, want[0]), 1e-6)

		const ff = 160
		layer := []device.Tensor{alloc(t, d, dt, ff, k), alloc(t, d, dt, ff, k), alloc(t, d, dt, k, ff)}
		for _, w := range layer {
			d.Write(w, randomMatrix(rng, dt, w.Dim(0), w.Dim(1)))
		}
		wide, stream := []device.Tensor{f(rows, ff), f(rows, ff)}, []device.Tensor{f(rows, k), f(rows, k)}
		device.Do(d.ops, device.Copy{Dst: stream[1], Src: stream[0]})
		d.ops.Flush()
		if !d.ops.gemmFeedForward(stream[0], scale, layer, wide) {
			t.Fatalf("%v: a feed-forward layer is not fused", dt)
		}
		device.Do(d.ops, device.RMSNorm{Dst: scratch, X: stream[1], W: scale.W, Eps: scale.Eps})
		d.ops.Flush()
		d.ops.products(wide, scratch, layer[:2])
		device.Do(d.ops, device.SwiGLU{Dst: wide[0], Gate: wide[0], Up: wide[1]})
		device.Do(d.ops, device.MatMul{Dst: scratch, X: wide[0], W: layer[2]})
		device.Do(d.ops, device.Add{Dst: stream[1], X: scratch})
		compare(t, read(t, d, stream[0]), read(t, d, stream[1]), gemmBound)
	}
}

// queued computes dst = x·wᵀ through the queue.
func (o *ops) queued(dst, x, w device.Tensor) {
	device.Do(o, device.MatMul{Dst: dst, X: x, W: w})
	o.Flush()
}

// TestLittleSharedMemory compares products of few rows with the reference where blocks have no
// more shared memory than on compute capability 8.9.
func TestLittleSharedMemory(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	d.drv.shared = min(d.drv.shared, 99<<10)
	for _, dt := range []device.DType{device.F16, device.BF16, device.Q4_0, device.Q8_0, device.Q4_K, device.Q5_K, device.Q6_K} {
		const n, k = 70, 2048
		bound := int8Bound
		if !dt.Quantized() {
			bound = sumBound(k)
		}
		for _, rows := range []int{1, 2, 11} {
			t.Run(fmt.Sprintf("type=%v/rows=%d", dt, rows), func(t *testing.T) {
				compareProduct(t, d, dt, [3]int{rows, n, k}, bound, d.ops.queued)
			})
		}
	}
}

// TestGEMV compares products of one row with the reference where rows of the weights start between
// multiples of 16 bytes, in every place that a block of 16 has, and three matrices are one launch.
func TestGEMV(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	for dt, lengths := range map[device.DType][]int{
		device.Q4_0: {64, 896, 4160}, device.Q8_0: {64, 896, 4160}, device.Q6_K: {256, 1792, 3584, 4864}, device.Q4_K: {768}, device.Q5_K: {4864},
	} {
		for _, k := range lengths {
			t.Run(fmt.Sprintf("type=%v/k=%d", dt, k), func(t *testing.T) {
				compareProduct(t, d, dt, [3]int{1, 90, k}, int8Bound, func(dst, x, w device.Tensor) {
					dst, of := dst.Reshape(90, 1), [3][2]int{{0, 41}, {41, 46}, {46, 90}}
					var to, from []device.Tensor
					for _, r := range of {
						copied := alloc(t, d, dt, r[1]-r[0], k)
						device.Do(d.ops, device.Copy{Dst: copied, Src: w.Rows(r[0], r[1])})
						to, from = append(to, dst.Rows(r[0], r[1]).Reshape(1, r[1]-r[0])), append(from, copied)
					}
					d.ops.Flush()
					if !d.ops.skinny(to, x, fusedNorm{}, from, epilogueStore) {
						t.Fatal("no kernel")
					}
				})
			})
		}
	}
}

// int8Bound is the error of a product with int8 activations, relative to a sum of k products with
// random signs: they are off by 5e-3 in the mean, half a 127th of the largest of 32, over √3.
const int8Bound = 2.5e-2

// TestSkinnyGEMM compares its kernels with the reference, with and without split-K, and with rows
// and columns that fill no tile.
func TestSkinnyGEMM(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	for dt, k := range skinnyKernels {
		if k.variant(16).shared(dt) > d.ops.room(k.variant(16).name) {
			t.Logf("%v: the GPU has too little shared memory", dt)
			continue
		}
		for _, s := range [][3]int{{8, 1, 2048}, {2, 33, 4096}, {16, 300, 2048}, {3, 50, 2816}, {9, 40, 10240}, {17, 31, 6144}, {63, 17, 2048}} {
			rows, n, k := s[0], s[1], s[2]
			bound := 2e-3 // f16 operands
			if !dt.Quantized() {
				bound = sumBound(k)
			}
			t.Run(fmt.Sprintf("type=%v/rows=%d/n=%d/k=%d", dt, rows, n, k), func(t *testing.T) {
				compareProduct(t, d, dt, [3]int{rows, n, k}, bound, func(dst, x, w device.Tensor) {
					one := products{[]device.Tensor{dst}, x, fusedNorm{}, []device.Tensor{w}, epilogueStore, []int{0}}
					if !d.ops.suitsSkinnyGEMM(x, one.norm, one.w) {
						t.Fatal("no kernel")
					}
					d.ops.skinnyGEMM(&one)
				})
			})
		}
	}
}

// TestSkinnyWGMMA compares its kernels with the reference: tiles that one block has and that several
// share, matrices that end in a tile, and rows of weights that start between multiples of 16 bytes.
func TestSkinnyWGMMA(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	if !d.drv.hasWGMMA() {
		t.Skip("the GPU has no wgmma")
	}
	for dt := range wgmmaKernels {
		for _, s := range [][3]int{{8, 1, 256}, {2, 300, 2048}, {16, 270, 1792}, {31, 130, 768}, {64, 140, 512}} {
			rows, n, k := s[0], s[1], s[2]
			t.Run(fmt.Sprintf("type=%v/rows=%d/n=%d/k=%d", dt, rows, n, k), func(t *testing.T) {
				compareProduct(t, d, dt, [3]int{rows, n, k}, 2e-3, func(dst, x, w device.Tensor) {
					one := products{[]device.Tensor{dst}, x, fusedNorm{}, []device.Tensor{w}, epilogueStore, []int{0}}
					if !d.ops.suitsSkinnyWGMMA(x, one.norm, one.w) {
						t.Fatal("no kernel")
					}
					d.ops.skinnyWGMMA(&one, false)
				})
			})
		}
	}
}

// sumBound is the difference of two sums of k products in f32.
func sumBound(k int) float64 { return math.Sqrt(float64(k)) * 0x1p-23 }

// compareProduct compares a product of random numbers with the reference. size is rows of x,
// rows of w, and k.
func compareProduct(t *testing.T, d *dev, dt device.DType, size [3]int, bound float64, product func(dst, x, w device.Tensor)) {
	t.Helper()
	rows, n, k := size[0], size[1], size[2]
	rng := rand.New(rand.NewPCG(3, 4))
	x, w := alloc(t, d, device.F32, rows, k), alloc(t, d, dt, n, k)
	d.Write(x, normal(rng, rows*k))
	d.Write(w, randomMatrix(rng, dt, n, k))
	got, want := alloc(t, d, device.F32, rows, n), alloc(t, d, device.F32, rows, n)
	product(got, x, w)
	d.ops.launch("matmul").tensor(want).tensor(x).tensor(w).int(int(dt), rows, n, k, dt.RowSize(k)).
		run(blocks{ceil(n, 8), rows, 1}, 256)
	compare(t, read(t, d, got), read(t, d, want), bound)
}

func alloc(t *testing.T, d device.Device, dt device.DType, dims ...int) device.Tensor {
	t.Helper()
	x, err := d.Alloc(dt, dims...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func read(t *testing.T, d device.Device, x device.Tensor) []float32 {
	t.Helper()
	raw := make([]byte, x.Size())
	if err := d.Read(raw, x); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	v := make([]float32, len(raw)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return v
}

// normal is n numbers of the normal distribution as f32.
func normal(rng *rand.Rand, n int) []byte {
	raw := make([]byte, 0, 4*n)
	for range n {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rng.NormFloat64())))
	}
	return raw
}

// scales are the offsets of the f16 scales in a block of a quantized type.
var scales = map[device.DType][]int{
	device.Q4_0: {0}, device.Q5_1: {0, 2}, device.Q8_0: {0}, device.Q4_K: {0, 2}, device.Q5_K: {0, 2}, device.Q6_K: {208},
}

// randomMatrix is the bytes of a matrix: random blocks with scales of 1/64 to 1/32, or floats of
// magnitude 1/4 to 1.
func randomMatrix(rng *rand.Rand, dt device.DType, n, k int) []byte {
	raw := make([]byte, n*dt.RowSize(k))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	for at := 0; at < len(raw); at += dt.BlockSize() {
		switch dt {
		case device.F16: // sign, exponent of 2⁻² or 2⁻¹, fraction
			binary.LittleEndian.PutUint16(raw[at:], uint16(rng.Uint32()&0x87ff|0x3400))
		case device.BF16:
			binary.LittleEndian.PutUint16(raw[at:], uint16(rng.Uint32()&0x80ff|0x3e80))
		}
		for _, s := range scales[dt] {
			binary.LittleEndian.PutUint16(raw[at+s:], uint16(0x2400|rng.Uint32()&0x3ff))
		}
	}
	return raw
}
