package serve

import "time"

// pace is how fast prefill chunks are: rows a second, of the last few chunks.
type pace struct{ rate float64 }

// firstRows is the chunk while nothing has been measured.
const firstRows = 256

// add counts a chunk.
func (p *pace) add(rows int, took time.Duration) {
	rate := float64(rows) / max(took.Seconds(), 1e-6)
	if p.rate == 0 {
		p.rate = rate
		return
	}
	p.rate = (p.rate + rate) / 2
}

// rows is how many rows take so long, at least a block.
func (p *pace) rows(limit time.Duration) int {
	if p.rate == 0 {
		return firstRows
	}
	return max(blockLen, int(p.rate*limit.Seconds()))
}
