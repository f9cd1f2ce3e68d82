package sparse_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// linesOf is the sums of the attention of the last rows of n along columns and
// diagonals.
func linesOf(x engine.QKV, all, n, rows, head int) (columns, diagonals []float64) {
	columns, diagonals = make([]float64, n), make([]float64, n)
	for p := max(n-rows, 0); p < n; p++ {
		for j, w := range weightsOf(x, all, p, head) {
			columns[j] += w
			diagonals[p-j] += w
		}
	}
	return columns, diagonals
}

// vslashPattern is what rows read by the specification: exact is the columns and
// the diagonals of row p, laid what the tiles of 64 of its block add.
func vslashPattern(x engine.QKV, all, n, p, head, v, s int) (exact, laid []int32) {
	columns, diagonals := linesOf(x, all, n, 64, head)
	for i := range columns {
		if i < 30 {
			columns[i] = math.Inf(1)
		}
		if i < 100 {
			diagonals[i] = math.Inf(1)
		}
	}
	read, tiled := make([]bool, p+1), make([]bool, p+1+128)
	for _, j := range best(columns, max(v, 30)) {
		if int(j) <= p {
			read[j], tiled[j] = true, true
		}
	}
	start := p / 64 * 64
	end := -1
	for _, o := range slices.Backward(best(diagonals, max(s, 50))) {
		if int(o) <= p {
			read[p-int(o)] = true
		}
		if int(o) > start+63 {
			continue
		}
		from := max(start-int(o), 0)
		switch {
		case end < from:
			end = from
		case from+64 <= end:
			continue
		}
		for j := end; j < end+64 && j < len(tiled); j++ {
			tiled[j] = true
		}
		end += 64
	}
	for j := range p + 1 {
		if read[j] {
			exact = append(exact, int32(j))
		}
		if tiled[j] {
			laid = append(laid, int32(j))
		}
	}
	return exact, laid
}

// TestVslashPattern holds what rows read against the pattern made here.
func TestVslashPattern(t *testing.T) {
	const n, prompt = 500, 499
	layers := lawTensors(31, n)
	for _, tt := range []struct{ v, s int }{{0, 0}, {60, 50}, {30, 130}, {100, 180}} {
		slack := false
		for at, keys := range selected(t, fmt.Sprintf("vslash(vertical=%d,slash=%d)", tt.v, tt.s), layers, n, prompt, 0) {
			if at.pos >= prompt {
				if len(keys) != at.pos+1 {
					t.Fatalf("%+v: decode reads %d positions, want all", at, len(keys))
				}
				continue
			}
			if at.pos%29 != 0 && at.pos != prompt-1 {
				continue // the oracle is slow
			}
			exact, laid := vslashPattern(layers[at.layer], n, prompt, at.pos, at.head, tt.v, tt.s)
			if !subset(exact, keys) {
				t.Fatalf("vertical %d, slash %d: %+v reads %v, the pattern is %v", tt.v, tt.s, at, keys, exact)
			}
			if !slices.Equal(keys, laid) {
				t.Fatalf("vertical %d, slash %d: %+v reads %v, the tiles of the pattern are %v", tt.v, tt.s, at, keys, laid)
			}
			slack = slack || len(laid) > len(exact)
		}
		if !slack {
			t.Errorf("vertical %d, slash %d: tiles add nothing to the pattern anywhere", tt.v, tt.s)
		}
	}
}

// TestVslashOfEverything: all columns, or all diagonals, are everything.
func TestVslashOfEverything(t *testing.T) {
	const n, prompt = 300, 299
	layers := lawTensors(32, n)
	for _, spec := range []string{"vslash(vertical=299,slash=0)", "vslash(vertical=0,slash=299)", "vslash"} {
		for at, keys := range selected(t, spec, layers, n, prompt, 0) {
			if len(keys) != at.pos+1 {
				t.Fatalf("%s: %+v reads %d positions", spec, at, len(keys))
			}
		}
	}
}

// TestVslashNestsInItsNumbers: more columns or more diagonals keep more weight.
func TestVslashNestsInItsNumbers(t *testing.T) {
	const n, prompt = 400, 399
	layers := lawTensors(33, n)
	var before map[readBy][]int32
	for _, spec := range []string{"vslash(vertical=30,slash=50)", "vslash(vertical=80,slash=50)", "vslash(vertical=200,slash=50)"} {
		read := selected(t, spec, layers, n, prompt, 0)
		for at, keys := range read {
			if before != nil && !subset(before[at], keys) {
				t.Fatalf("%s: %+v does not read what fewer columns do", spec, at)
			}
		}
		before = read
	}
}

// TestPatternNeedsTheWholePrompt: with pattern=whole a prompt is one pass; with
// per_chunk one chunk gives the same, several give something else.
func TestPatternNeedsTheWholePrompt(t *testing.T) {
	const n, prompt = 400, 399
	layers := lawTensors(34, n)
	for _, method := range []string{"vslash(vertical=40,slash=50%s)", "flexprefill(gamma=0.3,tau=0,min=64,block=64%s)"} {
		for option, want := range map[string]bool{"": true, ",pattern=per_chunk": false} {
			s, err := sparse.Parse(fmt.Sprintf(method, option))
			must(t, err)
			if s.Whole() != want {
				t.Errorf("%s: a prompt is one pass: %v, want %v", s, s.Whole(), want)
			}
		}
		run := func(option string, chunk int) []float32 {
			return outputs(openBench(t, fmt.Sprintf(method, option), n, nil).run(layers, prompt, chunk))
		}
		whole := run("", 0)
		same(t, method+" in chunks that are not taken", run("", 192), whole)
		same(t, method+" of one chunk", run(",pattern=per_chunk", 0), whole)
		if slices.Equal(run(",pattern=per_chunk", 192), whole) {
			t.Errorf("%s: patterns of chunks are the pattern of the prompt", method)
		}
	}
}

// TestPatternOfAPromptThatGoesOn: the second part of a prompt is planned by its
// own last rows, over everything before.
func TestPatternOfAPromptThatGoesOn(t *testing.T) {
	const n, first, prompt = 400, 150, 390
	layers := lawTensors(35, n)
	b := openBench(t, "vslash(vertical=60,slash=50)", n, nil)
	read := map[readBy][]int32{}
	b.Observe = func(sel engine.Selection) {
		for row, p := range sel.Pos {
			for h := range lawHeads {
				read[readBy{sel.Layer, p, h}], _ = sel.Keys(row, h)
			}
		}
	}
	seq := b.open(layers)
	must(t, seq.Prefill(first, 0))
	must(t, seq.Prefill(prompt-first, 0))
	for _, p := range []int{first, first + 1, 191, 192, 255, 256, prompt - 1} {
		for h := range lawHeads {
			if _, want := vslashPattern(layers[1], n, prompt, p, h, 60, 50); !slices.Equal(read[readBy{1, p, h}], want) {
				t.Errorf("row %d, head %d reads %v, want %v", p, h, read[readBy{1, p, h}], want)
			}
		}
	}
}

// Where the first key lies far above the others in every row, the columns of the others
// are too small for a float32, and the best of them are selected all the same.
func TestVslashRanksBesideADominantKey(t *testing.T) {
	const n, best = 400, 150
	x := engine.QKV{Q: make([]float32, 2*n), K: make([]float32, 2*n), V: make([]float32, 2*n)}
	for j := range n {
		x.Q[2*j] = math.Sqrt2
		x.K[2*j] = -float32(max(best-j, 2*(j-best))) / 4
	}
	x.K[0] = 200
	b := openBench(t, "vslash(vertical=36,slash=100)", n, func(c *engine.ReplayConfig) { c.Layers, c.Heads, c.KVHeads, c.HeadDim = 1, 1, 1, 2 })
	var got []int32
	b.Observe = func(sel engine.Selection) {
		for row, p := range sel.Pos {
			if p == n-1 {
				got, _ = sel.Keys(row, 0)
			}
		}
	}
	must(t, b.open([]engine.QKV{x}).Prefill(n, 0))
	var columns []int32 // besides the forced ones and the diagonals
	for _, j := range got {
		if j >= 30 && j < 200 {
			columns = append(columns, j)
		}
	}
	if want := []int32{146, 147, 148, 149, 150, 151}; !slices.Equal(columns, want) {
		t.Errorf("columns %v, want %v", columns, want)
	}
}
