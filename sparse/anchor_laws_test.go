package sparse_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
)

// anchorRule is options of anchor, and their definition.
type anchorRule struct {
	theta        float64
	step, block  int
	window, tail string
}

// spec is its text.
func (a anchorRule) spec() string {
	return fmt.Sprintf("anchor(theta=%v,step=%d,block=%d,window=%s,tail=%s)", a.theta, a.step, a.block, a.window, a.tail)
}

// windowed reports whether the row at p reads position j before it selects;
// start is the first position of its group.
func (a anchorRule) windowed(start, p, j int) bool {
	first, from := a.block, start-a.block
	switch a.window {
	case "noprev":
		from = start
	case "code_v4":
		first, from = a.step*a.block, start
	}
	return j <= p && (j < first || j >= from)
}

// candidates is what a group selects from.
func (a anchorRule) candidates(start int) (lo, hi int) {
	if a.window == "noprev" {
		return a.block, start
	}
	return a.block, start - a.block
}

// online is the state of a softmax that goes on.
type online struct {
	m, l float64
	acc  []float64
}

// add goes on with one score and value.
func (o *online) add(s float64, v []float32) {
	top := math.Max(o.m, s)
	old, now := math.Exp(o.m-top), math.Exp(s-top)
	o.m, o.l = top, o.l*old+now
	for i, x := range v {
		o.acc[i] = o.acc[i]*old + now*float64(x)
	}
}

// attend is the output of one head over n positions, [n, dim], and the smallest
// distance of a candidate from the threshold: passes A, B and C as they are
// written, C going on from where A stopped.
func (a anchorRule) attend(q, k, v []float32, n, dim int) (y []float64, margin float64) {
	score := func(q []float64, j int) (s float64) {
		for i, x := range q {
			s += x * float64(k[j*dim+i])
		}
		return s / math.Sqrt(float64(dim))
	}
	y, margin = make([]float64, n*dim), math.Inf(1)
	group := a.step * a.block
	for start := 0; start < n; start += group {
		end, dense := min(start+group, n), a.tail == "dense" && start+group > n
		rows := make([]online, end-start)
		for p := start; p < end; p++ { // A
			rows[p-start] = online{m: math.Inf(-1), acc: make([]float64, dim)}
			for j := range p + 1 {
				if dense || a.windowed(start, p, j) {
					rows[p-start].add(score(wide(q[p*dim:(p+1)*dim]), j), v[j*dim:(j+1)*dim])
				}
			}
		}
		tops := make([]float64, len(rows)) // of A: C has larger ones
		for i, r := range rows {
			tops[i] = r.m
		}
		lo, hi := a.candidates(start)
		for j := lo; j < hi && !dense; j++ { // B
			selected := false
			for first := start; first < end; first += a.block {
				mean, top, count := make([]float64, dim), 0.0, float64(min(first+a.block, end)-first)
				for p := first; p < min(first+a.block, end); p++ {
					top += tops[p-start] / count
					for i := range mean {
						mean[i] += float64(q[p*dim+i]) / count
					}
				}
				gap := top - score(mean, j)
				selected = selected || gap <= a.theta
				if d := math.Abs(gap - a.theta); d < margin {
					margin = d
				}
			}
			for p := start; selected && p < end; p++ { // C
				rows[p-start].add(score(wide(q[p*dim:(p+1)*dim]), j), v[j*dim:(j+1)*dim])
			}
		}
		for p := start; p < end; p++ {
			for i, x := range rows[p-start].acc {
				y[p*dim+i] = x / rows[p-start].l
			}
		}
	}
	return y, margin
}

func wide(x []float32) (y []float64) {
	for _, v := range x {
		y = append(y, float64(v))
	}
	return y
}

// openAnchorLaws is a replay of one layer of lawTensors.
func openAnchorLaws(t *testing.T, spec string, maxLen int) *bench {
	t.Helper()
	return openBench(t, spec, maxLen, func(c *engine.ReplayConfig) { c.Layers = 1 })
}

// lawLayer is one layer of lawTensors.
func lawLayer(n int) engine.QKV { return lawTensors(1, n)[0] }

// attended runs a prompt and gives its outputs and, by position and head, what
// was read, with weights.
func (b *bench) attended(x engine.QKV, n, chunk int) (y []float32, read map[[2]int]map[int32]float32) {
	b.t.Helper()
	read = map[[2]int]map[int32]float32{}
	b.Observe = func(sel engine.Selection) {
		for row, p := range sel.Pos {
			for h := range sel.Heads {
				keys, weights := sel.Keys(row, h)
				m := map[int32]float32{}
				for i, j := range keys {
					if m[j] = 1; weights != nil {
						m[j] = weights[i]
					}
				}
				read[[2]int{p, h}] = m
			}
		}
	}
	s := b.open([]engine.QKV{x})
	must(b.t, s.Prefill(n, chunk))
	b.Observe = nil
	return s.Output(0), read
}

// The method is its definition, at lengths that are whole groups and at others:
// the published wrapper computes nothing where a prompt is whole groups.
func TestAnchorAgainstDefinition(t *testing.T) {
	for _, window := range []string{"paper", "noprev", "code_v4"} {
		for _, tail := range []string{"native", "dense"} {
			for _, size := range [][2]int{{4, 8}, {2, 5}, {1, 16}} {
				for _, theta := range []float64{1, math.Inf(-1), math.Inf(1)} {
					a := anchorRule{theta, size[0], size[1], window, tail}
					group := a.step * a.block
					for _, n := range []int{group - 1, group, group + 1, 2 * group, 3 * group, 4*group + a.block + 1} {
						a.check(t, n)
					}
				}
			}
		}
	}
}

// check compares the method with its definition over n positions.
func (a anchorRule) check(t *testing.T, n int) {
	t.Helper()
	x := lawLayer(n)
	got, _ := openAnchorLaws(t, a.spec(), n).attended(x, n, 0)
	for h := range lawHeads {
		kv := h * lawKVHeads / lawHeads
		q, k, v := x.Q[h*n*lawDim:(h+1)*n*lawDim], x.K[kv*n*lawDim:(kv+1)*n*lawDim], x.V[kv*n*lawDim:(kv+1)*n*lawDim]
		want, margin := a.attend(q, k, v, n, lawDim)
		if margin < 1e-6 {
			t.Fatalf("%s, n=%d: a candidate is %g from the threshold: rounding decides; take other numbers", a.spec(), n, margin)
		}
		for i, w := range want {
			if d := math.Abs(float64(got[h*n*lawDim+i]) - w); !(d <= 4*close32) {
				t.Fatalf("%s, n=%d, head %d, position %d: %v, want %v", a.spec(), n, h, i/lawDim, got[h*n*lawDim+i], w)
			}
		}
	}
}

// the softmax of the window, (m, l, acc) = (3, 1.135335, 4.270671), goes on
// with a position of score 4 and value 10.
func TestAnchorExampleOfResume(t *testing.T) {
	o := online{m: math.Inf(-1), acc: make([]float64, 1)}
	digits := func(want string) {
		t.Helper()
		if got := fmt.Sprintf("%.6f %.6f %.6f", o.m, o.l, o.acc[0]); got != want {
			t.Errorf("m, l, acc: %s, want %s", got, want)
		}
	}
	o.add(1, []float32{2})
	o.add(3, []float32{4})
	digits("3.000000 1.135335 4.270671")
	o.add(4, []float32{10})
	digits("4.000000 1.417667 11.571092")

	// Row 2 has positions 0 and 2 in its window, position 1 is within the margin: it is
	// one above the largest score of the window.
	x := engine.QKV{Q: []float32{1, 1, 1}, K: []float32{1, 4, 3}, V: []float32{2, 10, 4}}
	for spec, want := range map[string]string{
		"anchor(block=1,step=1,window=noprev,theta=-1)":   "8.162069",
		"anchor(block=1,step=1,window=noprev,theta=-1.1)": fmt.Sprintf("%.6f", 4.270671/1.135335),
		"dense": "8.162069",
	} {
		b := openBench(t, spec, 3, func(c *engine.ReplayConfig) { c.Layers, c.Heads, c.KVHeads, c.HeadDim = 1, 1, 1, 1 })
		y, _ := b.attended(x, 3, 0)
		var w float64 // of six decimals; two exponentials and their sums are rounded to f32
		if _, err := fmt.Sscan(want, &w); err != nil || math.Abs(float64(y[2])-w) > 5e-7+4*0x1p-23*w {
			t.Errorf("%s: row 2 is %.6f, want %s", spec, y[2], want)
		}
	}
}

// A-1 as the published version of the code computes it: with everything selected
// positions 2 and 3 count twice, and 6 and 7 not at all.
func TestAnchorExampleOfPublishedCode(t *testing.T) {
	b := openBench(t, "anchor(block=2,step=2,theta=Inf,window=code_v4)", 12, func(c *engine.ReplayConfig) { c.Layers, c.Heads, c.KVHeads, c.HeadDim = 1, 1, 1, 1 })
	y, read := b.attended(anchorExample(), 12, 0)
	if math.Abs(float64(y[8])-.921864) > 1e-6 {
		t.Errorf("row 8 is %.6f, want 0.921864", y[8])
	}
	want := map[int32]float32{0: 1, 1: 1, 2: 2, 3: 2, 4: 1, 5: 1, 8: 1}
	if got := read[[2]int{8, 0}]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("row 8 reads %v, want %v", got, want)
	}
}

// A-2 of the published code: of the row 6143, in group 2, [128, 2048) counts
// twice and [3968, 4096) is never read, whatever the threshold.
func TestAnchorRangesOfPublishedCode(t *testing.T) {
	const n, row = 6144, 6143
	ones := slices.Repeat([]float32{1}, 16*n)
	for theta, want := range map[string]func(j int) float32{
		"Inf": func(j int) float32 {
			switch {
			case j >= 128 && j < 2048:
				return 2
			case j < 128 || j < 3968 || j >= 4096:
				return 1
			}
			return 0
		},
		"-Inf": func(j int) float32 {
			if j < 2048 || j >= 4096 {
				return 1
			}
			return 0
		},
	} {
		b := openBench(t, "anchor(window=code_v4,theta="+theta+")", n, func(c *engine.ReplayConfig) { c.Layers, c.Heads, c.KVHeads, c.HeadDim = 1, 1, 1, 16 })
		read := make([]float32, n)
		b.Observe = func(sel engine.Selection) {
			if last := len(sel.Pos) - 1; sel.Pos[last] == row {
				keys, weights := sel.Keys(last, 0)
				for i, j := range keys {
					if read[j] = 1; weights != nil {
						read[j] = weights[i]
					}
				}
			}
		}
		must(t, b.open([]engine.QKV{{Q: ones, K: ones, V: ones}}).Prefill(n, 0))
		for j := range row + 1 {
			if got := read[j]; got != want(j) {
				t.Fatalf("theta=%s: row %d reads position %d with weight %v, want %v", theta, row, j, got, want(j))
			}
		}
	}
}

// The published code is not dense however large the threshold; the others are.
func TestAnchorDenseLimit(t *testing.T) {
	const n = 200
	x := lawLayer(n)
	dense, _ := openAnchorLaws(t, "dense", n).attended(x, n, 0)
	for _, a := range []anchorRule{
		{math.Inf(1), 4, 8, "paper", "native"}, {math.Inf(1), 2, 16, "noprev", "native"}, {math.Inf(1), 4, 8, "code_v4", "native"},
	} {
		y, _ := openAnchorLaws(t, a.spec(), n).attended(x, n, 0)
		switch d := furthest(y, dense); {
		case a.window != "code_v4":
			same(t, a.spec(), y, dense)
		case !(d > .01):
			t.Errorf("%s differs from dense by %g only", a.spec(), d)
		}
	}
}

// What a row reads in its window and what it selects from are all of its past,
// and no position is in both.
func TestAnchorCoversThePastOnce(t *testing.T) {
	const n = 150
	x := lawLayer(n)
	for _, window := range []string{"paper", "noprev"} {
		for _, size := range [][2]int{{4, 8}, {1, 8}, {3, 5}, {16, 2}} {
			a := anchorRule{math.Inf(-1), size[0], size[1], window, "native"}
			_, windows := openAnchorLaws(t, a.spec(), n).attended(x, n, 0)
			a.theta = math.Inf(1)
			_, all := openAnchorLaws(t, a.spec(), n).attended(x, n, 0)
			for p := range n {
				start := p / (a.step * a.block) * a.step * a.block
				lo, hi := a.candidates(start)
				for j := range p + 1 {
					inWindow, candidate := windows[[2]int{p, 0}][int32(j)] == 1, lo <= j && j < hi
					if inWindow == candidate || all[[2]int{p, 0}][int32(j)] != 1 {
						t.Fatalf("%s, row %d, position %d: in the window %v, candidate %v, read %v times", a.spec(), p, j, inWindow, candidate, all[[2]int{p, 0}][int32(j)])
					}
				}
			}
		}
	}
}

// The threshold is on a mean: mean(M) - mean(q)·k = mean of the rows' M - q·k.
func TestAnchorGapIsTheMeanOfGaps(t *testing.T) {
	const n, block = 64, 16
	x, b := lawLayer(n), &residualBench{t: t}
	dev, err := device.Open("cpu", device.Config{Threads: 2})
	must(t, err)
	defer dev.Close()
	b.dev = dev
	keys := make([]float32, device.PageLen*lawDim)
	copy(keys, x.K[:n*lawDim])
	kv := device.KV{
		K: b.tensor(device.F32, keys, 1, 1, device.PageLen, lawDim), V: b.tensor(device.F32, keys, 1, 1, device.PageLen, lawDim),
		Pages: b.tensor(device.I32, []int32{0}, 1, 1), Len: b.tensor(device.I32, []int32{n}, 1),
	}
	const rows = 32 // two blocks
	q := b.tensor(device.F32, x.Q[(n-rows)*lawDim:n*lawDim], rows, 1, lawDim)
	top, meanTop := b.tensor(device.F32, make([]float32, rows), rows, 1), b.tensor(device.F32, make([]float32, 2), 2, 1)
	mean := b.tensor(device.F32, make([]float32, 2*lawDim), 2, 1, lawDim)
	plan := device.Plan{Sink: 8, Recent: 0, Align: rows, Selected: device.Tokens}
	device.Do(dev.Queue(), device.Score{Rule: device.AnchorMax, Dst: top, Q: q, KV: kv, Plan: plan})
	device.Do(dev.Queue(), device.Summarize{Rule: device.MeanRows, Dst: meanTop, X: top, KV: kv, Block: block})
	device.Do(dev.Queue(), device.Summarize{Rule: device.MeanRows, Dst: mean, X: q, KV: kv, Block: block})
	tops, meanTops, means := make([]float32, rows), make([]float32, 2), make([]float32, 2*lawDim)
	b.read(tops, top)
	b.read(meanTops, meanTop)
	b.read(means, mean)
	score := func(q []float32, j int) (s float64) {
		for i := range q {
			s += float64(q[i]) * float64(keys[j*lawDim+i])
		}
		return s / math.Sqrt(lawDim)
	}
	for at := range 2 {
		for j := range n - rows {
			var want float64
			for r := at * block; r < (at+1)*block; r++ {
				want += (float64(tops[r]) - score(x.Q[(n-rows+r)*lawDim:][:lawDim], j)) / block
			}
			if got := float64(meanTops[at]) - score(means[at*lawDim:][:lawDim], j); math.Abs(got-want) > 1e-5 {
				t.Fatalf("block %d, position %d: gap %v, mean of the rows' gaps %v", at, j, got, want)
			}
		}
	}
}

// A number added to all scores of a row changes neither what is selected nor the
// output: here it is the product of a constant element of the keys with the same
// element of the row's query.
func TestAnchorForgetsAShiftOfScores(t *testing.T) {
	const n = 160
	a := anchorRule{1, 4, 8, "paper", "native"}
	x := lawLayer(n)
	for i := 0; i < len(x.K); i += lawDim {
		x.K[i] = 1
	}
	y, read := openAnchorLaws(t, a.spec(), n).attended(x, n, 0)
	for i := 0; i < len(x.Q); i += lawDim {
		x.Q[i] += float32(i/lawDim%7) - 3
	}
	shifted, again := openAnchorLaws(t, a.spec(), n).attended(x, n, 0)
	near(t, "shifted scores", shifted, y)
	if fmt.Sprint(read) != fmt.Sprint(again) {
		t.Error("shifted scores select other positions")
	}
}

// howMany is how many positions all rows read.
func howMany(read map[[2]int]map[int32]float32) (n int) {
	for _, m := range read {
		n += len(m)
	}
	return n
}

// within reports whether each row of a reads only what it reads in b.
func within(a, b map[[2]int]map[int32]float32) bool {
	for at, m := range a {
		for j := range m {
			if b[at][j] == 0 {
				return false
			}
		}
	}
	return true
}

// A larger threshold selects more, and all that a smaller one does.
func TestAnchorIsMonotoneInTheta(t *testing.T) {
	const n = 200
	x := lawLayer(n)
	for _, window := range []string{"paper", "noprev", "code_v4"} {
		var last map[[2]int]map[int32]float32
		for _, theta := range []float64{math.Inf(-1), -1, 0, .5, 1, 2, 4, math.Inf(1)} {
			a := anchorRule{theta, 4, 8, window, "native"}
			_, read := openAnchorLaws(t, a.spec(), n).attended(x, n, 0)
			if last != nil && !within(last, read) {
				t.Errorf("%s: leaves out what a smaller threshold selects", a.spec())
			}
			last = read
		}
		a := anchorRule{1, 4, 8, window, "native"}
		if _, some := openAnchorLaws(t, a.spec(), n).attended(x, n, 0); howMany(some) >= howMany(last) {
			t.Errorf("%s selects everything: the test says nothing", a.spec())
		}
	}
}

// withLoudStart makes position 0 the largest score of every row, so that windows
// of any size have the same anchor.
func withLoudStart(n int) engine.QKV {
	x := lawLayer(n)
	for i := 0; i < len(x.Q); i += lawDim {
		x.Q[i] = 4
	}
	for i := 0; i < len(x.K); i += lawDim {
		if x.K[i] = 0; i/lawDim%n == 0 {
			x.K[i] = 8
		}
	}
	return x
}

// Rows of a block may change places: only their means count.
func TestAnchorForgetsTheOrderOfABlock(t *testing.T) {
	const n, theta = 160, 6
	a := anchorRule{theta, 4, 8, "paper", "native"}
	x := withLoudStart(n)
	_, read := openAnchorLaws(t, a.spec(), n).attended(x, n, 0)
	turned := slices.Clone(x.Q)
	for h := range lawHeads {
		for p := range n {
			to := p/a.block*a.block + a.block - 1 - p%a.block
			copy(turned[(h*n+to)*lawDim:(h*n+to+1)*lawDim], x.Q[(h*n+p)*lawDim:])
		}
	}
	x.Q = turned
	_, again := openAnchorLaws(t, a.spec(), n).attended(x, n, 0)
	if fmt.Sprint(read) != fmt.Sprint(again) {
		t.Error("rows of a block in another order select other positions")
	}
	all := anchorRule{math.Inf(1), 4, 8, "paper", "native"}
	if _, every := openAnchorLaws(t, all.spec(), n).attended(x, n, 0); howMany(read) >= howMany(every) {
		t.Error("everything is selected: the test says nothing")
	}
}

// A group selects what one of its blocks would alone: with one block to a group
// a row reads no more. The largest score is the same in both windows.
func TestAnchorOfOneBlockIsWithinThatOfMore(t *testing.T) {
	const n, theta = 200, 6
	x := withLoudStart(n)
	one, many := anchorRule{theta, 1, 8, "paper", "native"}, anchorRule{theta, 4, 8, "paper", "native"}
	_, few := openAnchorLaws(t, one.spec(), n).attended(x, n, 0)
	_, more := openAnchorLaws(t, many.spec(), n).attended(x, n, 0)
	if !within(few, more) {
		t.Error("a block alone reads what its group does not")
	}
	if howMany(few) >= howMany(more) {
		t.Error("both select the same: the test says nothing")
	}
}

// Chunks of the engine's length are whole groups of the default size.
func TestAnchorInChunksOfTheEngine(t *testing.T) {
	aboutNumbers(t)
	const n = 2*engine.ChunkLen + 300
	x := lawLayer(n)
	x.Q, x.K, x.V = x.Q[:n*lawDim], x.K[:n*lawDim], x.V[:n*lawDim]
	run := func(spec string, rows, chunk int) []float32 {
		b := openBench(t, spec, n, func(c *engine.ReplayConfig) { c.Layers, c.Heads, c.KVHeads, c.Rows = 1, 1, 1, rows })
		s := b.open([]engine.QKV{x})
		must(t, s.Prefill(n, chunk))
		return s.Output(0)
	}
	const spec = "anchor(theta=3)"
	whole := run(spec, n, n)
	same(t, "chunks of 2048", run(spec, 0, engine.ChunkLen), whole)
	if d := furthest(whole, run("dense", 0, 0)); !(d > .01) {
		t.Errorf("differs from dense by %g only: the test says nothing", d)
	}
}
