package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// topBlocks lists, for each block of rows, the blocks with the largest scores in its row of a
// walk.
func (o *ops) topBlocks(c *device.Select) {
	index, count := i32s(c.List.Index), i32s(c.List.Count)
	groups, limit := c.List.Index.Dim(0), c.List.Index.Dim(2)
	o.eachBlock("TopBlocks", c.KV, c.Rows, touched, func(b callBlock) {
		if b.group() >= groups {
			o.d.fail("TopBlocks: block %d of the call, want 0 to %d", b.group(), groups-1)
			return
		}
		scores := o.walkScores(c.Scores, walkRow(b, c.KV, c.Scores), b.index+1)
		selected := o.bestBlocks(scores, b, c.Blocks)
		copy(row(index, b.group(), limit), selected)
		count[b.group()] = int32(len(selected))
	})
}

// walkScores is the first n elements of a row of a walk, NaN as -Inf.
func (o *ops) walkScores(rows device.Tensor, r, n int) []float64 {
	scores := grown(&o.tasks.sketch.scores, n)
	if rows.DType == device.F32 {
		for j, v := range row(f32s(rows), r, rows.Dim(1))[:n] {
			scores[j] = float64(v)
		}
	} else {
		copy(scores, row(f64s(rows), r, rows.Dim(1)/2))
	}
	for j, v := range scores {
		if v != v {
			scores[j] = math.Inf(-1)
			o.tasks.sketch.nans++
		}
	}
	o.d.sawNaNs(&o.tasks.sketch.nans)
	return scores
}

// bestBlocks is the selected blocks of block b, ascending.
func (o *ops) bestBlocks(scores []float64, b callBlock, budget device.BlockBudget) []int32 {
	v := mask{device.Plan{Span: budget.Span}}
	list := grown(&o.tasks.sketch.blocks, b.index+1)[:0]
	for j := range b.index + 1 {
		if v.seesBlock(max(b.first, b.index*device.PageLen), j) {
			list = append(list, int32(j))
		}
	}
	n := budget.Of(len(list))
	if n >= len(list) || budget.Dense > 0 && b.index >= budget.Dense {
		return list
	}
	// Those between the edges compete, and the best k of them are taken.
	first, last := budget.Edges(len(list))
	lo, hi := 0, len(list)
	for lo < hi && int(list[lo]) < first {
		lo++
	}
	for hi > lo && int(list[hi-1]) > b.index-last {
		hi--
	}
	k := min(max(n-(len(list)-(hi-lo)), 0), hi-lo)
	if budget.Free { // so does the own block, in the place of another
		hi, k = len(list), n-1
	}
	bestFirst(list[lo:hi], scores, k)
	if budget.Free {
		list = append(list[:k], int32(b.index))
	} else {
		list = append(list[:lo+k], list[hi:]...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// bestFirst moves the k blocks of list with the largest scores to its front, in any order;
// ties to the lowest block (quickselect).
func bestFirst(list []int32, scores []float64, k int) {
	before := func(x, y int32) bool { return scores[x] > scores[y] || scores[x] == scores[y] && x < y }
	for lo, hi := 0, len(list)-1; lo < hi && k > lo; {
		pivot := list[(lo+hi)/2]
		i, j := lo, hi
		for i <= j {
			for before(list[i], pivot) {
				i++
			}
			for before(pivot, list[j]) {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch { // lo..j come before the pivot, i..hi after it
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return
		}
	}
}
