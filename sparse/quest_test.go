package sparse_test

import (
	encoding "encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// boundsOf runs the two ops that quest ranks pages by on n keys of one head, and
// returns the score of each page.
func boundsOf(t *testing.T, dt device.DType, keys, query []float32, dim, page int) []float64 {
	t.Helper()
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	must(t, err)
	defer dev.Close()
	n := len(keys) / dim
	blocks := (n + device.PageLen - 1) / device.PageLen
	alloc := func(dt device.DType, dims ...int) device.Tensor {
		x, err := dev.Alloc(dt, dims...)
		must(t, err)
		return x
	}
	fill := func(x device.Tensor, v any) device.Tensor {
		b, err := encoding.Append(nil, encoding.LittleEndian, v)
		must(t, err)
		dev.Write(x, b)
		return x
	}
	table := make([]int32, blocks)
	for i := range table {
		table[i] = int32(i)
	}
	kv := device.KV{
		K: alloc(dt, blocks, 1, device.PageLen, dim), V: alloc(dt, blocks, 1, device.PageLen, dim),
		Pages: fill(alloc(device.I32, 1, blocks), table), Len: fill(alloc(device.I32, 1), []int32{int32(n)}),
	}
	parts := device.PageLen / page
	bounds := alloc(dt, blocks, 1, parts, 2*dim)
	scores := alloc(device.F32, 1, 1, blocks*parts)
	k := fill(alloc(device.F32, n, 1, dim), keys)
	ops := dev.Queue()
	device.Do(ops, device.Append{KV: kv, K: k, V: k})
	device.Do(ops, device.Summarize{Rule: device.KeyBounds, Dst: bounds, KV: kv, Rows: n})
	device.Do(ops, device.Score{Rule: device.BoundScores, Dst: scores, Q: fill(alloc(device.F32, 1, 1, dim), query), Keys: bounds, KV: kv})
	raw := make([]byte, scores.Size())
	must(t, dev.Read(raw, scores))
	all := make([]float64, (n+page-1)/page)
	for i := range all {
		all[i] = float64(math.Float32frombits(encoding.LittleEndian.Uint32(raw[4*i:])))
	}
	return all
}

// TestQuestExample is the example of the specification: pages of two keys.
func TestQuestExample(t *testing.T) {
	got := boundsOf(t, device.F16, []float32{1, -1, 2, 0, -1, 3, 0, 1}, []float32{1, -2}, 2, 2)
	if want := []float64{4, -2}; !slices.Equal(got, want) {
		t.Errorf("scores of the pages: %v, want %v", got, want)
	}
}

// TestQuestBoundsKeys: no key of a page scores more than the page does, whatever
// the type of the cache.
func TestQuestBoundsKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		dim, page, n := 2+rng.IntN(30), 1<<rng.IntN(7), 1+rng.IntN(200)
		keys, query := make([]float32, n*dim), make([]float32, dim)
		for i := range keys {
			keys[i] = float32(rng.NormFloat64())
		}
		for i := range query {
			query[i] = float32(rng.NormFloat64())
		}
		for _, dt := range []device.DType{device.F32, device.F16} {
			slack := 1e-5
			if dt == device.F16 {
				slack = 2e-3 * math.Sqrt(float64(dim)) // keys are rounded when they are stored
			}
			scores := boundsOf(t, dt, keys, query, dim, page)
			exact := true // some page's bound is reached, as with one key a page
			for j := range n {
				var s float64
				for i, q := range query {
					s += float64(q) * float64(keys[j*dim+i])
				}
				if s > scores[j/page]+slack {
					t.Fatalf("dim %d, page %d, %v: key %d scores %v, its page %v", dim, page, dt, j, s, scores[j/page])
				}
				exact = exact && s > scores[j/page]-slack
			}
			if page == 1 && !exact {
				t.Errorf("pages of one key: bounds are not the scores of the keys")
			}
		}
	}
}

// TestQuestPages holds the pages that rows read against bounds made here.
func TestQuestPages(t *testing.T) {
	const n, prompt = 330, 310
	layers := lawTensors(21, n)
	for _, tt := range []struct {
		spec   string
		page   int
		pages  func(n int) int
		shared bool
	}{
		{"quest(budget=80)", 16, func(int) int { return 5 }, false},
		{"quest(budget=0.3,page=8)", 8, func(n int) int { return int(0.3*float64(n)+1e-9) / 8 }, false},
		{"quest(budget=10,page=32,share=group)", 32, func(int) int { return 3 }, true},
		{"quest(budget=200,page=64)", 64, func(int) int { return 3 }, false},
	} {
		read := selected(t, tt.spec, layers, n, prompt, 0)
		for at, keys := range read {
			if at.layer < 2 || at.pos < prompt {
				if len(keys) != at.pos+1 {
					t.Fatalf("%s: %+v reads %d positions, want all: layers 0 and 1 and prompts are dense", tt.spec, at, len(keys))
				}
				continue
			}
			own := at.pos / tt.page
			scores := make([]float64, own)
			for page := range scores {
				for h := range lawHeads {
					if h == at.head || tt.shared && h/2 == at.head/2 {
						scores[page] += pageBound(queryOf(layers[at.layer], n, at.pos, h), func(j int) []float32 { return keyOf(layers[at.layer], n, page*tt.page+j, h) }, tt.page)
					}
				}
			}
			var want []int32
			for _, page := range append(best(scores, tt.pages(at.pos+1)-1), int32(own)) {
				for j := int(page) * tt.page; j < min((int(page)+1)*tt.page, at.pos+1); j++ {
					want = append(want, int32(j))
				}
			}
			if !slices.Equal(keys, want) {
				t.Fatalf("%s: %+v reads %v, want %v", tt.spec, at, keys, want)
			}
		}
	}
}

// pageBound is Σ max(q·min, q·max) over a page of keys.
func pageBound(q []float32, key func(j int) []float32, page int) (sum float64) {
	for i, x := range q {
		lo, hi := math.Inf(1), math.Inf(-1)
		for j := range page {
			lo, hi = min(lo, float64(key(j)[i])), max(hi, float64(key(j)[i]))
		}
		sum += max(float64(x)*lo, float64(x)*hi)
	}
	return sum
}

// TestQuestOfEverything: a budget that holds everything reads everything, and
// more budget reads what less does.
func TestQuestOfEverything(t *testing.T) {
	const n, prompt = 330, 310
	layers := lawTensors(22, n)
	var before map[readBy][]int32
	for _, budget := range []string{"1", "60", "150", "330", "1.0"} {
		read := selected(t, fmt.Sprintf("quest(budget=%s)", budget), layers, n, prompt, 0)
		for at, keys := range read {
			if before != nil && !subset(before[at], keys) {
				t.Errorf("budget %s: %+v does not read what a smaller budget does", budget, at)
			}
			if everything := budget == "330" || budget == "1.0"; everything && len(keys) != at.pos+1 {
				t.Errorf("budget %s: %+v reads %d positions", budget, at, len(keys))
			}
		}
		before = read
	}
	same(t, "a budget of everything", outputs(openBench(t, "quest(budget=1.0)", n, nil).run(layers, prompt, 0)),
		outputs(openBench(t, "dense", n, nil).run(layers, prompt, 0)))
}

// TestQuestComposed: a window before it hides pages from it, and a sample after it
// is of what it leaves out.
func TestQuestComposed(t *testing.T) {
	const n, prompt = 330, 310
	layers := lawTensors(23, n)
	window := selected(t, "psaw(phi=0.2,ls=0,sink=3)", layers, n, prompt, 0)
	both := selected(t, "psaw(phi=0.2,ls=0,sink=3) + quest(budget=80)", layers, n, prompt, 0)
	alone := selected(t, "quest(budget=80)", layers, n, prompt, 0)
	sampled := selected(t, "quest(budget=80) + vattention(fb=0.1,eps=0.4)", layers, n, prompt, 0)
	hidden, more := false, false
	for at, keys := range both {
		if !subset(keys, window[at]) {
			t.Errorf("%+v reads what the window hides", at)
		}
		hidden = hidden || !slices.Equal(keys, alone[at])
		if want := min(5, len(pagesOf(window[at], 16))); at.layer >= 2 && at.pos >= prompt && len(pagesOf(keys, 16)) != want {
			t.Errorf("%+v reads %d pages, want %d of those that it sees", at, len(pagesOf(keys, 16)), want)
		}
	}
	for at, keys := range alone {
		if !subset(keys, sampled[at]) {
			t.Errorf("%+v: the sample leaves out what was selected", at)
		}
		more = more || len(sampled[at]) > len(keys)
	}
	if !hidden || !more {
		t.Errorf("the window changes something: %v, the sample adds something: %v", hidden, more)
	}
}

// pagesOf is the pages that positions lie in.
func pagesOf(keys []int32, page int32) []int32 {
	var pages []int32
	for _, j := range keys {
		pages = append(pages, j/page)
	}
	return slices.Compact(pages)
}
