package sparse_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
)

// flexOptions are the options of flexprefill.
type flexOptions struct {
	gamma, tau      float64
	min, max, block int
}

func (f flexOptions) String() string {
	return fmt.Sprintf("flexprefill(gamma=%v,tau=%v,min=%d,max=%d,block=%d)", f.gamma, f.tau, f.min, f.max, f.block)
}

// flexBlocks is the specification: for each block of rows of a head the blocks
// that it reads, and whether the head is query-aware.
func flexBlocks(x engine.QKV, all, n, head int, f flexOptions) (read [][]bool, aware bool) {
	blocks := (n + f.block - 1) / f.block
	columns, diagonals := linesOf(x, all, n, f.block, head)
	count := func(scores []float64) int {
		sorted, n := slices.Clone(scores), 1
		slices.Sort(sorted)
		for sum, i := 0.0, len(sorted)-1; i >= 0; i-- {
			if sum += sorted[i] / float64(f.block); sum > f.gamma {
				break
			}
			n++
		}
		limit := blocks
		if f.max > 0 {
			limit = min(limit, f.max/f.block)
		}
		return min(max(n/f.block+1, f.min/f.block), limit)
	}
	pool := func(scores []float64) []float64 {
		pooled := make([]float64, blocks)
		for i, v := range scores {
			pooled[i/f.block] += v / float64(f.block)
		}
		return pooled
	}
	mean := func(of func(j int) []float32, from, to int) []float64 {
		m := make([]float64, lawDim)
		for j := from; j < to; j++ {
			for i, v := range of(j) {
				m[i] += float64(v) / float64(to-from)
			}
		}
		return m
	}
	query := func(j int) []float32 { return queryOf(x, all, j, head) }
	key := func(j int) []float32 { return keyOf(x, all, j, head) }
	shares := func(q []float64, blocks int) []float64 {
		s := make([]float64, blocks)
		for b := range s {
			for i, k := range mean(key, b*f.block, min((b+1)*f.block, n)) {
				s[b] += q[i] * k / math.Sqrt(lawDim)
			}
		}
		return softmax64(s)
	}
	aware = rootJS(shares(mean(query, n-f.block, n), blocks), pool(columns)) < f.tau
	nv, ns := count(columns), count(diagonals)
	if aware {
		nv, ns = min(max(f.min/f.block, 1), blocks), min(max(f.min/f.block, 1), blocks)
	}
	v, s := pool(columns), pool(diagonals)
	v[0], s[0] = math.Inf(1), math.Inf(1)
	bestV, bestS := best(v, nv), best(s, ns)
	var flat []float64
	for i := range blocks {
		read = append(read, make([]bool, i+1))
		for j := range read[i] {
			read[i][j] = slices.Contains(bestV, int32(j)) || slices.Contains(bestS, int32(i-j))
		}
		row := make([]float64, blocks)
		copy(row, shares(mean(query, i*f.block, min((i+1)*f.block, n)), i+1))
		flat = append(flat, row...)
	}
	order := best(flat, len(flat))
	slices.SortStableFunc(order, func(a, b int32) int {
		if flat[a] > flat[b] {
			return -1
		}
		if flat[a] < flat[b] {
			return 1
		}
		return 0
	})
	sum := 0.0
	for _, at := range order {
		if sum += flat[at]; !aware || sum > f.gamma*float64(blocks)+1e-9 {
			break
		}
		if i, j := int(at)/blocks, int(at)%blocks; j <= i {
			read[i][j] = true
		}
	}
	return read, aware
}

// rootJS is the root of the Jensen-Shannon divergence.
func rootJS(p, q []float64) float64 {
	var d float64
	for i := range p {
		m := (p[i] + q[i]) / 2
		if p[i] > 0 {
			d += p[i] * math.Log(p[i]/m) / 2
		}
		if q[i] > 0 {
			d += q[i] * math.Log(q[i]/m) / 2
		}
	}
	return math.Sqrt(max(d, 0))
}

// flexTensors are tensors whose blocks differ: heads of some layers look far, at
// columns, and those of others at blocks.
func flexTensors(n int) []engine.QKV {
	layers := lawTensors(41, n)
	for l := range layers {
		for h := range lawKVHeads {
			for j := range n {
				k := layers[l].K[(h*n+j)*lawDim:][:lawDim]
				for i := range k {
					k[i] += float32(l) * float32(math.Sin(float64(j/64+3*i+h))) / 2
				}
			}
		}
	}
	return layers
}

// TestFlexprefillBlocks holds the blocks that rows read against the specification.
func TestFlexprefillBlocks(t *testing.T) {
	const n, prompt = 600, 590
	layers := flexTensors(n)
	seen := map[bool]int{}
	for _, f := range []flexOptions{
		{gamma: 0.3, tau: 0, min: 64, block: 64}, {gamma: 0.5, tau: 1, min: 64, block: 64}, {gamma: 0.4, tau: 0.18, min: 128, block: 64},
		{gamma: 0.9, tau: 0, min: 0, max: 192, block: 64}, {gamma: 0.3, tau: 1, min: 0, block: 128}, {gamma: 0.5, tau: 0.178, min: 128, block: 128},
	} {
		read := selected(t, f.String(), layers, n, prompt, 0)
		for l := range lawLayers {
			for h := range lawHeads {
				want, aware := flexBlocks(layers[l], n, prompt, h, f)
				seen[aware && f.tau > 0 && f.tau < 1]++
				for i, blocks := range want {
					for p := i * f.block; p < min((i+1)*f.block, prompt); p++ {
						var keys []int32
						for j := range int32(p + 1) {
							if blocks[int(j)/f.block] {
								keys = append(keys, j)
							}
						}
						if got := read[readBy{l, p, h}]; !slices.Equal(got, keys) {
							t.Fatalf("%v: layer %d, row %d, head %d (query-aware: %v) reads %d positions, want %d of blocks %v", f, l, p, h, aware, len(got), len(keys), blocks)
						}
					}
				}
			}
		}
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("heads that are query-aware and not, where tau decides: %v, want both", seen)
	}
}

// TestFlexprefillIsDenseWhenShort: up to max(256, min) positions everything is
// read, and one more is sparse; gamma=1 reads everything.
func TestFlexprefillIsDenseWhenShort(t *testing.T) {
	for _, tt := range []struct {
		spec  string
		n     int
		dense bool
	}{
		{"flexprefill(gamma=0.1,tau=0,min=0)", 256, true},
		{"flexprefill(gamma=0.1,tau=0,min=0)", 385, false},
		{"flexprefill(gamma=0.1,tau=0,min=300)", 384, true},
		{"flexprefill(gamma=0.1,tau=0,min=257,max=300)", 1100, false},
		{"flexprefill", 900, true},
		{"flexprefill(gamma=1,tau=1,min=0)", 600, true},
	} {
		layers := lawTensors(42, tt.n+1)
		everything := true
		for at, keys := range selected(t, tt.spec, layers, tt.n+1, tt.n, 0) {
			everything = everything && len(keys) == at.pos+1
		}
		if everything != tt.dense {
			t.Errorf("%s of %d positions reads everything: %v, want %v", tt.spec, tt.n, everything, tt.dense)
		}
	}
}

// TestFlexprefillNestsInGamma: a larger share reads what a smaller one does, and
// every row reads block 0 and its own block.
func TestFlexprefillNestsInGamma(t *testing.T) {
	const n, prompt = 500, 499
	layers := flexTensors(n)
	for _, tau := range []float64{0, 1} {
		var before map[readBy][]int32
		for _, gamma := range []float64{0, 0.3, 0.7, 0.95, 1} {
			read := selected(t, flexOptions{gamma: gamma, tau: tau, block: 64}.String(), layers, n, prompt, 0)
			for at, keys := range read {
				if before != nil && !subset(before[at], keys) {
					t.Fatalf("gamma=%v, tau=%v: %+v does not read what a smaller share does", gamma, tau, at)
				}
				own := at.pos / 64 * 64
				if !subset(upTo(min(63, at.pos)), keys) || !subset(upTo(at.pos)[own:], keys) {
					t.Fatalf("gamma=%v, tau=%v: %+v does not read block 0 and its own: %v", gamma, tau, at, keys)
				}
			}
			before = read
		}
	}
}

// TestFlexprefillComposed: where a method after it cuts the prompt into tiles,
// each tile reads what its rows read without the cuts, and what is sampled comes
// on top.
func TestFlexprefillComposed(t *testing.T) {
	const n, prompt, question = 500, 490, 40
	layers := flexTensors(n)
	spec := flexOptions{gamma: 0.2, block: 64}.String()
	alone := selected(t, spec, layers, n, prompt, 0)
	more := false
	for at, keys := range selected(t, fmt.Sprintf("%s + vattention(question=%d,eps=0.5)", spec, question), layers, n, prompt, 0) {
		if at.pos < prompt-question && !slices.Equal(keys, alone[at]) {
			t.Fatalf("%+v reads %v, without a question %v", at, keys, alone[at])
		}
		if at.pos >= prompt {
			continue
		}
		if !subset(alone[at], keys) {
			t.Fatalf("%+v of the question reads %v and leaves out of %v", at, keys, alone[at])
		}
		more = more || len(keys) > len(alone[at])
	}
	if !more {
		t.Error("nothing is sampled")
	}
}

// TestFlexprefillOfEverything: gamma=1 is dense attention bit for bit.
func TestFlexprefillOfEverything(t *testing.T) {
	const n, prompt = 400, 399
	layers := flexTensors(n)
	same(t, "gamma=1", outputs(openBench(t, flexOptions{gamma: 1, tau: 1, block: 64}.String(), n, nil).run(layers, prompt, 0)),
		outputs(openBench(t, "dense", n, nil).run(layers, prompt, 0)))
}
