//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// Products of one row; see single.cu.

// singleKernel is the kernel of a type and what a launch of it needs.
type singleKernel struct {
	name    string
	weights int  // of a chunk, of each of its rows
	x       int  // bytes of shared memory for what meets a chunk
	ring    int  // bytes of shared memory of a warp
	eight   bool // chunks are of 8 rows
}

// singleKernels are the kernels for one row, by type.
var singleKernels = map[device.DType]singleKernel{
	device.F32:  {"single_f32", 256, 1024, 6 * 1024, false},
	device.F16:  {"single_f16", 128, 528, 4 * 8 * 320, true},
	device.BF16: {"single_bf16", 512, 2048, 6 * 1024, false},
	device.Q4_0: {"single_q4_0", 2048, 3072, 4 * 1152, false},
	device.Q8_0: {"single_q8_0", 256, 288, 4 * 8 * 272, true},
	device.Q4_K: {"single_q4_k", 512, 640, 4 * 8 * 288, true},
	device.Q5_K: {"single_q5_k", 2048, 3072, 3 * 1408, false},
	device.Q6_K: {"single_q6_k", 2048, 3072, 3 * 1680, false},
}

// singlePairs are kernels for two types, by those for one.
var singlePairs = map[[2]string]string{{"single_q4_k", "single_q6_k"}: "single_q4_k_q6_k"}

// What becomes of a product, as in single.cu.
const (
	store = iota
	add
	gate
	inHeads
)

const (
	singleWarps = 16       // of a block
	heldOfWarp  = 16       // numbers of x that a thread holds while it normalizes
	mostSums    = 10 << 10 // sums of chunks that a block has
)

// suits reports whether x·wᵀ is a product of one row for which there is a kernel.
func (o *ops) suits(x device.Tensor, n device.Norm, w []device.Tensor) bool {
	if x.Dim(0) != 1 || o.d.address(x)%16 != 0 {
		return false
	}
	k := x.Dim(1)
	if !n.W.Absent() && (o.d.address(n.W)%16 != 0 || k > heldOfWarp*singleWarps*32) {
		return false
	}
	for _, w := range w {
		s, ok := singleKernels[w.DType]
		least := 8
		if w.DType.Quantized() {
			least = 256
		}
		if !ok || k == 0 || k%least != 0 || w.DType.RowSize(k)%16 != 0 || o.d.address(w)%16 != 0 ||
			s.shared(k, 2) > o.d.drv.sharedMemory() {
			return false
		}
	}
	return true
}

// sums is how many sums a block has of each of its rows.
func (s singleKernel) sums(k int) int {
	if s.eight {
		return singleWarps + 1
	}
	return ceil(k, s.weights)
}

// shared is the bytes of shared memory that a block of rows needs.
func (s singleKernel) shared(k, rows int) int {
	return ceil(k, s.weights)*s.x + ceil(rows*(s.sums(k)+1)*4, 16)*16 + singleWarps*s.ring
}

// single computes products of one row if they suit it: dst[i] = x·w[i]ᵀ, in one
// launch for each type among w. gate has one dst for two w.
func (o *ops) single(dst []device.Tensor, x device.Tensor, n device.Norm, w []device.Tensor, mode int) bool {
	if !o.suits(x, n, w) {
		return false
	}
	if mode == gate && w[0].DType != w[1].DType {
		return false
	}
	var done [16]bool
	if len(w) > len(done) {
		return false
	}
	var launches [4]products
	count := 0
	for i := range w {
		if done[i] {
			continue
		}
		if count == len(launches) {
			return false
		}
		p := &launches[count]
		count++
		*p = products{singleKernel: singleKernels[w[i].DType], x: x, norm: n, mode: mode, fixed: true}
		for j := i; j < len(w) && p.n < len(p.w); j++ {
			if !done[j] && w[j].DType == w[i].DType {
				done[j] = true
				p.take(dst, j, w[j])
			}
		}
	}
	if pair, ok := singlePairs[[2]string{launches[0].name, launches[1].name}]; ok && count == 2 && (mode == store || mode == inHeads) &&
		o.launchPair(pair, &launches[0], &launches[1]) {
		return true
	}
	for i := range count {
		o.launchSingle(&launches[i])
	}
	return true
}

// products are those of a launch, whose types are the same.
type products struct {
	singleKernel
	x     device.Tensor
	norm  device.Norm
	mode  int
	dst   [3]device.Tensor
	role  [3]int // of heads: 0 queries, 1 keys, 2 values
	w     [3]device.Tensor
	n     int  // of w
	items int  // rows, of gate pairs of rows
	fixed bool // no kernel writes w
}

// take adds product number i.
func (p *products) take(dst []device.Tensor, i int, w device.Tensor) {
	if i < len(dst) {
		p.dst[p.n] = dst[i]
	}
	p.w[p.n], p.role[p.n] = w, i
	p.n++
	if i < len(dst) {
		p.items += w.Dim(0)
	}
	p.fixed = p.fixed && w.Memory().(*memory).fixed
}

// rows is how many rows of weights a block has when there are so many.
func (p *products) rows(blocks int) int {
	switch blocks = max(blocks, 1); p.mode {
	case gate:
		return 2 * ceil(p.items, blocks)
	case inHeads: // pairs of rows
		return 2 * ceil(p.items/2, blocks)
	}
	return ceil(p.items, blocks)
}

// size is the bytes of the weights.
func (p *products) size() int {
	n := 0
	for _, w := range p.w[:p.n] {
		n += w.Size()
	}
	return n
}

// fits reports whether a block has memory for its part when there are so many.
func (p *products) fits(blocks int, d *driver) bool {
	k, rows := p.x.Dim(1), p.rows(blocks)
	return p.shared(k, rows) <= d.sharedMemory() && rows*p.sums(k) <= mostSums
}

// launchSingle queues products.
func (o *ops) launchSingle(p *products) {
	// A block for each multiprocessor, or several where their sums need too much memory.
	grid := min(o.d.drv.multiprocessors(), p.items)
	for !p.fits(grid, o.d.drv) {
		grid *= 2
	}
	shared := p.shared(p.x.Dim(1), p.rows(grid))
	if p.mode == add {
		// No two blocks of such a launch on a multiprocessor: they come after attention,
		// which leaves multiprocessors unequally free.
		shared = max(shared, o.d.drv.sharedMemory()/2+(4<<10))
	}
	c := o.call(p.name)
	o.give(c, p, grid)
	c.ahead().runShared(blocks{grid, 1, 1}, singleWarps*32, shared)
}

// launchPair queues products of two types in one launch: some blocks have the rows of
// the one, the others those of the other.
func (o *ops) launchPair(name string, p, q *products) bool {
	grid := o.d.drv.multiprocessors()
	of := (grid*p.size() + (p.size()+q.size())/2) / (p.size() + q.size())
	of = min(max(of, 1), grid-1)
	if !p.fits(of, o.d.drv) || !q.fits(grid-of, o.d.drv) {
		return false
	}
	c := o.call(name)
	o.give(c, p, of)
	o.give(c, q, grid-of)
	k := p.x.Dim(1)
	c.int(of).ahead().runShared(blocks{grid, 1, 1}, singleWarps*32, max(p.shared(k, p.rows(of)), q.shared(k, q.rows(grid-of))))
	return true
}

// give gives a SingleArgs of products that so many blocks compute.
func (o *ops) give(c *call, p *products, blocks int) {
	c.tensor(p.x).tensor(p.norm.W).float(float64(p.norm.Eps))
	for _, t := range p.dst {
		c.tensor(t)
	}
	for _, t := range p.w {
		c.tensor(t)
	}
	for _, t := range p.w {
		if t.Absent() {
			c.int(0)
		} else {
			c.int(t.Dim(0))
		}
	}
	k := p.x.Dim(1)
	c.int(k, p.w[0].DType.RowSize(k), p.mode).bool(p.fixed)
	c.int(p.role[:]...)
	if p.mode != inHeads {
		for range pagesWords + 4 {
			c.word(0)
		}
		return
	}
	r := o.turn.rope
	c.pages(o.turn.kv, 1).tensor(o.turn.pos).tensor(r.Freqs).float(float64(r.Scale)).int(r.Freqs.Dim(0))
}

// FuseNormMatMuls computes dst[i] = norm(x)·w[i]ᵀ of one row.
func (o *ops) FuseNormMatMuls(dst []device.Tensor, x device.Tensor, n device.Norm, w []device.Tensor) bool {
	checkNorm(x, n)
	for i := range dst {
		checkProduct(dst[i], x, w[i])
	}
	return o.single(dst, x, n, w, store)
}

// FuseNormSwiGLU computes dst = silu(norm(x)·w[0]ᵀ) · (norm(x)·w[1]ᵀ) of one row.
func (o *ops) FuseNormSwiGLU(dst, x device.Tensor, n device.Norm, w []device.Tensor) bool {
	checkNorm(x, n)
	checkProduct(dst, x, w[0])
	checkProduct(dst, x, w[1])
	o.one[0] = dst
	return o.single(o.one[:1], x, n, w, gate)
}

// FuseAddMatMul computes dst += x·wᵀ of one row.
func (o *ops) FuseAddMatMul(dst, x, w device.Tensor) bool {
	checkProduct(dst, x, w)
	o.one = [3]device.Tensor{dst, w}
	return o.single(o.one[:1], x, device.Norm{}, o.one[1:2], add)
}

// turn is what becomes of queries, keys and values of one row.
type turn struct {
	kv   device.KV
	pos  device.Tensor
	rope device.Rope
}

// FuseNormHeads computes dst[i] = norm(x)·w[i]ᵀ of one row, queries, keys and values,
// turns them and appends them.
func (o *ops) FuseNormHeads(kv device.KV, dst []device.Tensor, x device.Tensor, n device.Norm, w []device.Tensor, pos device.Tensor, r device.Rope) bool {
	const op = "NormHeads"
	if x.Dim(0) != 1 || !r.Interleaved || kv.K.Dim(3)%2 != 0 {
		return false
	}
	checkNorm(x, n)
	for i := range dst {
		checkProduct(dst[i], x, w[i])
	}
	heads := dst[0].Dim(1) / kv.K.Dim(3)
	o.checkRopeAppend(op, kv, dst[0].Reshape(1, heads, kv.K.Dim(3)), dst[1].Reshape(1, kv.K.Dim(1), kv.K.Dim(3)),
		dst[2].Reshape(1, kv.K.Dim(1), kv.K.Dim(3)), pos, r)
	if device.RowsPerSlot(op, 1, kv) != 1 {
		return false
	}
	o.turn = turn{kv, pos, r}
	return o.single(dst, x, n, w, inHeads)
}

// checkNorm panics unless n fits rows of x.
func checkNorm(x device.Tensor, n device.Norm) {
	const op = "RMSNorm"
	device.CheckShape(op, "x", x, device.F32, -1, -1)
	device.CheckShape(op, "w", n.W, device.F32, x.Dim(1))
}
