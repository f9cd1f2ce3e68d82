package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// pooledScratch is what one worker needs to score and select blocks by their pooled queries
// and keys, or by their columns and diagonals.
type pooledScratch struct {
	x, y   []float64 // by line or by block
	order  []int32   // blocks
	pairs  []blockPair
	blocks []uint64 // [blocks of rows, words]: a bit for each block
}

// pooledScratch is the scratch of all workers.
func (o *ops) pooledScratch() []pooledScratch {
	o.tasks.pooled = perWorker(o.pool, o.tasks.pooled)
	return o.tasks.pooled
}

// meanSoftmax sets dst to softmax(q·k/√dim) over the first len(dst) mean keys, k [blocks,
// kvheads, dim].
func meanSoftmax(dst []float64, q, k []float32, kvHead, kvHeads int) {
	top := math.Inf(-1)
	for j := range dst {
		dst[j] = dot(q, row(k, j*kvHeads+kvHead, len(q))) / math.Sqrt(float64(len(q)))
		if dst[j] > top {
			top = dst[j]
		}
	}
	var sum float64
	for j, x := range dst {
		dst[j] = 0
		if x > math.Inf(-1) {
			dst[j] = math.Exp(x - top)
			sum += dst[j]
		}
	}
	for j := range dst {
		if sum > 0 {
			dst[j] /= sum
		}
	}
}

// poolLines sums the mass of columns or diagonals by blocks.
func poolLines(dst []float64, x []float32, block int) {
	clear(dst)
	for i, v := range x {
		dst[i/block] += device.DecodeMass(v)
	}
}
