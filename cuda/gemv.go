//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// Products of one row; see gemv.cu.

// singleKernel is the kernel of a type and what a launch of it needs.
type singleKernel struct {
	name    string
	heads   string // of queries, keys and values
	weights int    // of a chunk
	x       int    // bytes of shared memory for what meets a chunk
	ring    int    // bytes of shared memory of a warp
	warps   int    // of a block, at most
}

// singleKernels are the kernels for one row, by type.
var singleKernels = map[device.DType]singleKernel{
	device.F32:  {"gemv_f32", "gemv_qkv_f32", 512, 0, 3 * 2048, 16},
	device.F16:  {"gemv_f16", "gemv_qkv_f16", 1024, 0, 3 * 2048, 16},
	device.BF16: {"gemv_bf16", "gemv_qkv_bf16", 1024, 0, 3 * 2048, 16},
	device.Q4_0: {"gemv_q4_0", "gemv_qkv_q4_0", 2048, 2432, 4 * 1152, 16},
	device.Q8_0: {"gemv_q8_0", "gemv_qkv_q8_0", 2048, 2432, 3 * 2176, 14},
	device.Q4_K: {"gemv_q4_k", "gemv_qkv_q4_k", 2048, 2432, 4 * 1152, 16},
	device.Q5_K: {"gemv_q5_k", "gemv_qkv_q5_k", 2048, 2432, 3 * 1408, 16},
	device.Q6_K: {"gemv_q6_k", "gemv_qkv_q6_k", 2048, 2432, 3 * 1680, 16},
}

// share is how many warps of a block have a row of k numbers together, and how many a
// block has: each of the first ones one chunk, or the same number of them where the row
// has more chunks than a block has warps.
func (s singleKernel) share(k int) (slots, warps int) {
	chunks := ceil(k, s.weights)
	slots = ceil(chunks, ceil(chunks, s.warps))
	return slots, s.warps / slots * slots
}

// What becomes of a product, as in gemv.cu.
const (
	store = iota
	add
	gate
	inHeads // by the kernels of their own
)

// maxSums is how many sums of chunks a block has, at most.
const maxSums = 10 << 10

// suitsSingle reports whether x·wᵀ is a product of one row for which there is a kernel.
func (o *ops) suitsSingle(x device.Tensor, n normWeights, w []device.Tensor) bool {
	if x.Dim(0) != 1 || o.d.address(x)%16 != 0 {
		return false
	}
	k := x.Dim(1)
	if !n.W.Absent() && o.d.address(n.W)%16 != 0 {
		return false
	}
	for _, w := range w {
		s, ok := singleKernels[w.DType]
		least := 8
		if w.DType.Quantized() {
			least = 256
		}
		if !ok || k == 0 || k%least != 0 || w.DType.RowSize(k)%16 != 0 || o.d.address(w)%16 != 0 ||
			s.shared(k, 2*(ceil(k, s.weights)+1)) > o.singleRoom(s) {
			return false
		}
	}
	return true
}

// shared is the bytes of shared memory that a block needs that keeps so many sums.
func (s singleKernel) shared(k, sums int) int {
	_, warps := s.share(k)
	return ceil(k, s.weights)*s.x + ceil(sums*4, 16)*16 + warps*s.ring
}

// singleRoom is the room of both kernels of a type.
func (o *ops) singleRoom(s singleKernel) int { return min(o.room(s.name), o.room(s.heads)) }

// launchSingle queues the products that of numbers, whose types are the same.
func (o *ops) launchSingle(dst []device.Tensor, x device.Tensor, n normWeights, w []device.Tensor, mode int, of []int) {
	s, k := singleKernels[w[of[0]].DType], x.Dim(1)
	fixed, items := true, 0
	for _, i := range of {
		fixed = fixed && w[i].Memory().(*memory).fixed
		items += w[i].Dim(0)
	}
	per, sums := 1, ceil(k, s.weights) // rows of an item, and what is kept of each
	switch mode {
	case gate:
		items, per = items/2, 2
	case inHeads: // pairs of elements that turn, and cosine and sine of each
		items, per, sums = items/2, 2, sums+1
	}
	// A block for each multiprocessor, or several where their sums need too much memory.
	grid := min(o.d.drv.multiprocessors(), items)
	rows := func() int { return ceil(items, max(grid, 1)) * per }
	for s.shared(k, rows()*sums) > o.singleRoom(s) || rows()*sums > maxSums {
		grid *= 2
	}
	shared := s.shared(k, rows()*sums)
	if mode == add {
		// No two blocks of such a launch on a multiprocessor: they come after attention,
		// which leaves multiprocessors unequally free.
		shared = max(shared, o.d.drv.sharedMemory()/2+(4<<10))
	}
	name := s.name
	if mode == inHeads {
		name = s.heads
	}
	c := o.call(name).tensor(x).tensor(n.W).float(float64(n.Eps))
	c.products(dst, w, of, 0, 1)
	slots, warps := s.share(k)
	c.int(k, w[of[0]].DType.RowSize(k), mode).bool(fixed).int(slots)
	if mode == inHeads {
		for i := range 3 {
			if i < len(of) {
				c.int(of[i])
			} else {
				c.int(0)
			}
		}
		t := &o.rotation
		c.pages(t.kv, 1).tensor(t.pos).tensor(t.rope.Freqs).float(float64(t.rope.Scale)).int(t.rope.Freqs.Dim(0))
	}
	c.pdlEarly().runShared(blocks{grid, 1, 1}, warps*32, shared)
}

// products adds up to three results, rows lo to hi-1 of each, their matrices, and how
// many rows these have; of numbers them, and absent ones are 0.
func (c *call) products(dst, w []device.Tensor, of []int, lo, hi int) {
	for i := range 3 {
		if i < len(of) && of[i] < len(dst) {
			c.tensor(dst[of[i]].Rows(lo, hi))
		} else {
			c.word(0)
		}
	}
	for i := range 3 {
		if i < len(of) {
			c.tensor(w[of[i]])
		} else {
			c.word(0)
		}
	}
	for i := range 3 {
		if i < len(of) {
			c.int(w[of[i]].Dim(0))
		} else {
			c.word(0)
		}
	}
}

// rotation is what becomes of queries, keys and values of one row.
type rotation struct {
	kv   device.KV
	pos  device.Tensor
	rope device.Rotation
}
