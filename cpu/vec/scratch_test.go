package vec

import (
	"fmt"
	"testing"
	"time"
)

func TestScratchKernels(t *testing.T) {
	const dim = 64
	k := Best()
	q, s, acc, sc := normal(4*dim), normal(4*Tile), normal(4*dim), normal(4)
	rows := caches(Tile * dim)["f16"]
	var at, next [Tile]int
	for i := range at {
		at[i] = i * dim
	}
	next = at
	mq := MirrorQueries{Words: make([]int32, 4*17), Units: make([]float32, 4)}
	m8, m4 := make([]int32, 17*Tile), make([]int32, 9*Tile)
	lab := halves(normal(4 * Tile))
	sg := make([]int32, 4*Tile)
	top, sum := normal(4), normal(4)
	for name, f := range map[string]func(){
		"scores4":   func() { k.Scores(s, q, rows, Rows{}, 4, Tile, dim) },
		"scores1":   func() { k.Scores(s, q, rows, Rows{}, 1, Tile, dim) },
		"gather4":   func() { k.Gather(acc, s, sc, rows, Rows{}, 4, Tile, dim) },
		"gatherAt4": func() { k.GatherAt(acc, s, sc, rows, &at, &next, 4, Tile, dim) },
		"gatherAt1": func() { k.GatherAt(acc, s, sc, rows, &at, &next, 1, Tile, dim) },
		"scoresAt4": func() { k.ScoresAt(s, q, rows, &at, &next, 4, Tile, dim) },
		"scoresAt1": func() { k.ScoresAt(s, q, rows, &at, &next, 1, Tile, dim) },
		"softmax4":  func() { k.Softmax(s, top, sum, sc) },
		"mirror8":   func() { k.MirrorScores(s, mq, m8, nil) },
		"mirror4":   func() { k.MirrorScores(s, mq, m4, nil) },
		"labels4":   func() { k.Labels(s, q[:4], lab, nil) },
		"signs":     func() { k.Signs(s, sg[:4], sg) },
	} {
		best := time.Hour
		for range 3000 {
			start := time.Now()
			for range 10 {
				f()
			}
			best = min(best, time.Since(start))
		}
		fmt.Printf("%-10s %v\n", name, best/10)
	}
}
