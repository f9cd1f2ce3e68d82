package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// agreementTask is PooledAgreement: item i is head i.
type agreementTask struct {
	agreement     []int32   // [heads]
	columns, q    []float32 // [heads, width], [heads, dim]: q is the mean query
	keys          []float32 // [blocks, kvheads, dim]: mean keys
	heads         int
	kvHeads       int
	width, dim    int
	block, len    int // positions of a block, and of the slot
	maxDivergence float64
	scratch       []pooledScratch
}

// pooledAgreement is 1 for each head whose pooled attention is close to the mass of its
// columns, otherwise 0 (FlexPrefill).
func (o *ops) pooledAgreement(c *device.Score) {
	t := &o.tasks.agreement
	*t = agreementTask{
		agreement: i32s(c.Dst), columns: f32s(c.Columns), q: f32s(c.Q), keys: f32s(c.Keys), heads: c.Q.Dim(1), kvHeads: c.Keys.Dim(1),
		width: c.Columns.Dim(1), dim: c.Q.Dim(2), block: c.Block, maxDivergence: c.MaxDivergence, scratch: o.pooledScratch(),
	}
	if t.len = o.onlyLen("PooledAgreement", c.KV, min(t.width, c.Keys.Dim(0)*c.Block)); t.len > 0 {
		o.pool.RunChunks(t.heads, 1, t)
	}
}

// Do compares the two distributions of heads lo to hi-1.
func (t *agreementTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	n := (t.len + t.block - 1) / t.block
	for h := lo; h < hi; h++ {
		means, sums := grown(&s.x, n), grown(&s.y, n)
		meanSoftmax(means, row(t.q, h, t.dim), t.keys, h*t.kvHeads/t.heads, t.kvHeads)
		poolLines(sums, row(t.columns, h, t.width)[:t.len], t.block)
		var total float64
		for _, x := range sums {
			total += x
		}
		for i := range sums {
			sums[i] /= total
		}
		t.agreement[h] = 0
		if divergence(means, sums) < t.maxDivergence {
			t.agreement[h] = 1
		}
	}
}

// divergence is the square root of the Jensen-Shannon divergence, with 0·ln 0 = 0.
func divergence(p, q []float64) float64 {
	var sum float64
	for i := range p {
		m := (p[i] + q[i]) / 2
		if p[i] > 0 {
			sum += p[i] * math.Log(p[i]/m) / 2
		}
		if q[i] > 0 {
			sum += q[i] * math.Log(q[i]/m) / 2
		}
	}
	if sum < 0 { // rounding; NaN stays
		sum = 0
	}
	return math.Sqrt(sum)
}
