package device

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// numbers is memory of i32, as a host reads it.
type numbers []int32

func (n *numbers) Size() int { return 4 * len(*n) }

// put adds a tensor of some numbers.
func (n *numbers) put(v []int32, dims ...int) Tensor {
	at := len(*n)
	*n = append(*n, v...)
	return NewTensor(n, 4*at, I32, dims...)
}

func (n *numbers) stored(t Tensor) []int32 { return (*n)[t.Offset()/4:][:t.Len()] }

// cacheOf is a cache of some slots, of which only Len holds anything.
func cacheOf(n *numbers, kvHeads, dim int, lens ...int32) KV {
	memory := bytesOnHost(1 << 30)
	k := NewTensor(&memory, 0, F16, 1024, kvHeads, PageLen, dim)
	return KV{K: k, V: k, Pages: n.put(make([]int32, len(lens)), len(lens), 1), Len: n.put(lens, len(lens))}
}

func floats(dims ...int) Tensor {
	memory := bytesOnHost(1 << 30)
	return NewTensor(&memory, 0, F32, dims...)
}

// TestAttendCost: what is read of the cache is counted from what is stored, and without it
// not at all.
func TestAttendCost(t *testing.T) {
	var n numbers
	const heads, kvHeads, dim, stored = 32, 8, 128, 32<<10 + 1
	q := floats(1, heads, dim)
	c := &Attend{Dst: q, Q: q, KV: cacheOf(&n, kvHeads, dim, stored)}
	ends := int64(2 * heads * dim * 4)
	if got, want := c.Cost(n.stored), (Cost{Bytes: ends + 2*stored*kvHeads*dim*2, Ops: 4 * stored * heads * dim}); got != want {
		t.Errorf("dense behind 32k: %+v, want %+v", got, want)
	}
	if got, want := c.Cost(nil), (Cost{Bytes: ends}); got != want {
		t.Errorf("behind nobody knows how much: %+v, want %+v", got, want)
	}
	c.Plan = Plan{Selected: Tokens, Mixture: true, List: List{
		Index: n.put(make([]int32, 3*heads), 1, heads, 3), Count: n.put(slices.Repeat([]int32{2}, heads), 1, heads), Weight: floats(1, heads, 3),
	}}
	copy(n[c.Plan.List.Index.Offset()/4:], slices.Repeat([]int32{5, 9, -1}, heads)) // every head the same
	if got, want := c.Cost(n.stored), (Cost{Bytes: ends + 2*kvHeads*dim*2 + heads*2*8, Ops: 2 * 2 * heads * dim}); got != want {
		t.Errorf("a mixture of two values: %+v, want %+v", got, want)
	}
}

// readsCase is rows, and what they read.
type readsCase struct {
	name    string
	lens    []int32
	rows    int
	plan    Plan
	lists   int // of a group of rows
	listed  func(rng *rand.Rand, pos int) []int32
	atLeast bool // rows of K are a lower bound
}

// TestReads holds what a plan is counted to read against every position of every row and
// head, one by one.
func TestReads(t *testing.T) {
	some := func(rng *rand.Rand, pos int) (all []int32) { // positions before the newest ten, behind the first two
		for j := 2; j < pos-9; j++ {
			if rng.IntN(5) == 0 {
				all = append(all, int32(j))
			}
		}
		return all
	}
	blocks := func(rng *rand.Rand, pos int) (all []int32) { // and the row's own
		for b := range pos / PageLen {
			if rng.IntN(2) == 0 {
				all = append(all, int32(b))
			}
		}
		return append(all, int32(pos/PageLen))
	}
	tokens := Plan{Sink: 2, Recent: 10, Selected: Tokens}
	for _, c := range []readsCase{
		{name: "dense step", lens: []int32{200}, rows: 1},
		{name: "dense chunk", lens: []int32{200}, rows: 50},
		{name: "dense batch with an idle slot", lens: []int32{200, 0, 3}, rows: 3},
		{name: "window", lens: []int32{200}, rows: 50, plan: Plan{Span: Span{Back: 20}}},
		{name: "sinks and window", lens: []int32{200}, rows: 50, plan: Plan{Sink: 4, Recent: 16, Selected: None}},
		{name: "sinks and window of all there is", lens: []int32{3}, rows: 3, plan: Plan{Sink: 4, Recent: 16, Selected: None}},
		{name: "aligned window", lens: []int32{200}, rows: 50, plan: Plan{Sink: 4, Align: 16, Recent: 16, Selected: None}},
		{name: "dropped share", lens: []int32{200}, rows: 50, plan: Plan{Span: Span{Sink: 4, Drop: 0.5, Recent: 8}}},
		{name: "positions of kv heads", lens: []int32{200}, rows: 1, plan: tokens, lists: 2, listed: some},
		{name: "positions of query heads", lens: []int32{200, 0, 90}, rows: 3, plan: tokens, lists: 4, listed: some},
		{name: "positions of all heads", lens: []int32{200}, rows: 1, plan: tokens, lists: 1, listed: some},
		{name: "positions of many rows", lens: []int32{200}, rows: 50, plan: tokens, lists: 4, listed: some, atLeast: true},
		{name: "blocks of a step", lens: []int32{200}, rows: 1, plan: Plan{Selected: Blocks}, lists: 1, listed: blocks},
		{name: "blocks between sinks and a window", lens: []int32{200}, rows: 1, plan: Plan{Sink: 2, Recent: 70, Selected: Blocks}, lists: 2, listed: blocks},
		{name: "blocks of a batch", lens: []int32{200, 64, 0, 65}, rows: 4, plan: Plan{Selected: Blocks}, lists: 2, listed: blocks},
		{name: "blocks of a chunk", lens: []int32{320}, rows: 192, plan: Plan{Selected: Blocks, List: List{Group: PageLen}}, lists: 1, listed: blocks},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(5) {
				c.run(t, rand.New(rand.NewPCG(seed, 0)))
			}
		})
	}
}

func (c *readsCase) run(t *testing.T, rng *rand.Rand) {
	const heads, kvHeads = 4, 2
	var n numbers
	kv := cacheOf(&n, kvHeads, 16, c.lens...)
	var s Stored = n.stored
	pos := s.positions(kv, c.rows)
	plan := c.plan
	lists := map[[2]int][]int32{} // by group and list
	entries := 0
	if c.listed != nil {
		groups := pos[c.rows-1]/max(plan.List.Group, 1) - pos[0]/max(plan.List.Group, 1) + 1
		if len(c.lens) > 1 {
			groups = c.rows
		}
		var index, count []int32
		for g := range groups {
			last := pos[min(g*max(plan.List.Group, 1), c.rows-1)] // a row of the group
			for l := range c.lists {
				list := c.listed(rng, last)
				if last < 0 {
					list = []int32{1, 2} // of a sequence that was there before
				} else {
					entries += len(list)
				}
				lists[[2]int{g, l}] = list
				count = append(count, int32(len(list)))
				index = append(append(index, list...), slices.Repeat([]int32{-1}, 400-len(list))...)
			}
		}
		plan.List.Index, plan.List.Count = n.put(index, groups, c.lists, 400), n.put(count, groups, c.lists)
	}
	if got := s.listBytes(&plan.List, kv, c.rows); c.listed != nil && got != int64(4*entries) {
		t.Errorf("lists of %d bytes, want %d entries", got, entries)
	}
	var want reads
	for slot := range c.lens {
		seen := [kvHeads]map[int]bool{{}, {}}
		for row, p := range pos {
			if len(c.lens) > 1 && row != slot || p < 0 {
				continue
			}
			group := p/max(plan.List.Group, 1) - pos[0]/max(plan.List.Group, 1)
			if len(c.lens) > 1 {
				group = row
			}
			for head := range heads {
				for j := range p + 1 {
					if reading(&plan, lists[[2]int{group, head * max(c.lists, 1) / heads}], p, j) {
						want.pairs++
						seen[head*kvHeads/heads][j] = true
					}
				}
			}
		}
		for _, of := range seen {
			want.rows += int64(len(of))
		}
	}
	got := s.reads(&plan, kv, c.rows, heads)
	if c.atLeast && got.rows <= want.rows && got.rows > want.rows/4 {
		got.rows = want.rows
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// reading is the definition: whether the row at p reads position j.
func reading(plan *Plan, list []int32, p, j int) bool {
	recent := p + 1 - plan.Recent
	if plan.Align > 0 {
		recent = p - p%plan.Align - plan.Recent
	}
	switch {
	case !plan.Span.Sees(p, j):
		return false
	case j < plan.Sink || j >= recent:
		return true
	case plan.Selected == Blocks:
		return slices.Contains(list, int32(j/PageLen))
	case plan.Selected == Tokens:
		return slices.Contains(list, int32(j))
	}
	return plan.Selected == All
}

// TestVerbCosts: what selecting costs in a step behind 999 positions, by hand. A row of K has
// 32 bytes, and 1000 positions are 16 blocks and 63 parts of 16.
func TestVerbCosts(t *testing.T) {
	var n numbers
	kv := cacheOf(&n, 2, 16, 1000)
	q, sketch, pairs := floats(1, 4, 16), floats(1024, 1, 8), floats(1024, 16)
	memory := bytesOnHost(1 << 30)
	bounds := NewTensor(&memory, 0, F16, 1024, 2, 4, 32)
	list := func(heads, entries int) List {
		return List{Index: n.put(make([]int32, 8*heads), 1, heads, 8), Count: n.put(slices.Repeat([]int32{int32(entries)}, heads), 1, heads)}
	}
	ends := Plan{Sink: 2, Recent: 10, Selected: None}
	reuse := func(found ...int32) *ReuseSelection {
		return &ReuseSelection{List: list(4, 5), Cache: SelectionCache{Found: n.put(found, 1, 4)}, Compared: q, Q: q, KV: kv, Plan: ends}
	}
	for name, c := range map[string]struct {
		call Call
		want Cost
	}{
		"scores of everything": {&Score{Rule: ExactScores, Q: q, KV: kv}, Cost{Bytes: 256 + 2*1000*32 + 4*4*1000, Ops: 2 * 16 * 4 * 1000}},
		"scores of the middle": {&Score{Rule: ExactScores, Q: q, KV: kv, Plan: ends, Region: SelectedRegion}, Cost{Bytes: 256 + 2*988*32 + 4*4*1000, Ops: 2 * 16 * 4 * 988}},
		"scores of the edges":  {&Score{Rule: AnchorMax, Dst: floats(1, 4), Q: q, KV: kv, Plan: ends}, Cost{Bytes: 256 + 2*12*32 + 4*4, Ops: 2 * 16 * 4 * 12}},
		"bounds":               {&Score{Rule: BoundScores, Dst: floats(1, 4, 64), Q: q, Keys: bounds, KV: kv}, Cost{Bytes: 256 + 63*(2*64+4*4), Ops: 4 * 16 * 4 * 63}},
		"sketches":             {&Score{Rule: SketchScores, Q: sketch, Keys: sketch, KV: kv, Rows: 1}, Cost{Bytes: 4 * (8*17 + 16), Ops: 2 * 8 * 16}},
		"groups":               {&Score{Rule: GroupMax, Q: floats(1, 4, 1024), KV: kv}, Cost{Bytes: 4 * 1000 * 6, Ops: 4 * 1000}},
		"a walk":               {&Walk{Dst: pairs, Src: pairs, KV: kv, Rows: 1}, Cost{Bytes: 4*136 + 2*4*16, Ops: 2 * 136}},
		"a walk that begins":   {&Walk{Dst: pairs, KV: kv, Rows: 1}, Cost{Bytes: 8 * 16, Ops: 16}},
		"best positions":       {&Select{Rule: TopK, List: list(4, 5), Scores: floats(1, 4, 1024), KV: kv}, Cost{Bytes: 4*4*1000 + 4*5*4}},
		"best blocks":          {&Select{Rule: TopBlocks, List: list(1, 3), Scores: pairs, KV: kv, Rows: 1}, Cost{Bytes: 4*16 + 4*3}},
		"best parts":           {&Select{Rule: TopParts, List: list(4, 3), Scores: floats(1, 4, 64), KV: kv, PerPage: 4}, Cost{Bytes: 4*4*63 + 4*3*4}},
		"means":                {&Summarize{Rule: MeanKeys, KV: kv, Block: 64}, Cost{Bytes: 2*1000*32 + 4*16*2*16, Ops: 2 * 1000 * 16}},
		"values drawn":         {&Sample{Rule: ValueSample, List: list(4, 7), Q: q, KV: kv}, Cost{Bytes: 256 + 2*1000*32 + 4*7*4, Ops: 2 * 16 * 4 * 1000}},
		"all found":            {reuse(0, 0, 0, 0), Cost{Bytes: 512 + 4*5*4}},
		"some found":           {reuse(-1, -1, 0, 0), Cost{Bytes: 512 + 4*5*4 + 988*32, Ops: 2 * 2 * 988 * 16}},
		"none found":           {reuse(-1, -1, -1, -1), Cost{Bytes: 512 + 4*5*4 + 2*988*32, Ops: 4 * 2 * 988 * 16}},
	} {
		if got := c.call.Cost(n.stored); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestFusedCost: what is written, read and discarded by calls that are computed at once
// does not move, and what was there before is read.
func TestFusedCost(t *testing.T) {
	memory := bytesOnHost(1 << 20)
	at := func(i int, dt DType, dims ...int) Tensor { return NewTensor(&memory, i<<12, dt, dims...) }
	x, norm, w := at(0, F32, 2, 32), at(1, F32, 2, 32), at(2, F32, 32)
	q, k, mq, mk := at(3, F32, 2, 64), at(4, F32, 2, 32), at(5, Q8_0, 64, 32), at(6, F32, 32, 32)
	calls := []Call{
		&RMSNorm{Dst: norm, X: x, W: w}, &MatMul{Dst: q, X: norm, W: mq}, &MatMul{Dst: k, X: norm, W: mk}, &Discard{T: norm},
		&MatMul{Dst: norm, X: k, W: mk}, &Add{Dst: x, X: norm}, &Discard{T: norm}, &Discard{T: q},
	}
	ops := func(tensors ...Tensor) (n int64) {
		for _, m := range tensors {
			n += 2 * 2 * int64(m.Len())
		}
		return n
	}
	for _, c := range []struct {
		n    int
		want Cost
	}{
		{3, Cost{Bytes: 2*int64(norm.Size()) + moved(norm, x, w, q, k, mq, mk).Bytes, Ops: 4*64 + ops(mq, mk), Int8: ops(mq)}},
		{4, Cost{Bytes: moved(x, w, q, k, mq, mk).Bytes, Ops: 4*64 + ops(mq, mk), Int8: ops(mq)}},
		{7, Cost{Bytes: moved(x, w, q, k, mq, mk, k, mk, x, x).Bytes, Ops: 4*64 + 64 + ops(mq, mk, mk), Int8: ops(mq)}},
		{8, Cost{Bytes: moved(x, w, k, mq, mk, k, mk, x, x).Bytes, Ops: 4*64 + 64 + ops(mq, mk, mk), Int8: ops(mq)}},
	} {
		if got := CostOf(calls[:c.n], costsOf(calls[:c.n])); got != c.want {
			t.Errorf("%d calls: %+v, want %+v", c.n, got, c.want)
		}
	}
	read := []Call{&MatMul{Dst: q, X: norm, W: mq}, &Discard{T: norm}}
	if got, want := CostOf(read, costsOf(read)).Bytes, moved(q, norm, mq).Bytes; got != want {
		t.Errorf("rows that were there before: %d bytes, want %d", got, want)
	}
}

func costsOf(calls []Call) (all []Cost) {
	for _, c := range calls {
		all = append(all, c.Cost(nil))
	}
	return all
}

// TestOperands: tensors under the names of their fields, those that are there.
func TestOperands(t *testing.T) {
	var n numbers
	kv := cacheOf(&n, 2, 16, 100)
	q := floats(1, 4, 16)
	list := List{Index: n.put([]int32{1, 2}, 1, 1, 2), Count: n.put([]int32{2}, 1, 1)}
	for _, c := range []struct {
		call Call
		want string
	}{
		{&Add{Dst: q, X: q}, "Dst F32 [1 4 16], X F32 [1 4 16]"},
		{&Attend{Dst: q, Q: q, KV: kv, Plan: Plan{Selected: Blocks, List: list}}, "Dst F32 [1 4 16], Q F32 [1 4 16], KV F16 [1024 2 64 16], List I32 [1 1 2]"},
		{&Rope{X: q, Pos: list.Count, Rotation: Rotation{Freqs: q}}, "X F32 [1 4 16], Pos I32 [1 1], Freqs F32 [1 4 16]"},
		{&Walk{Dst: q, Pairs: q, KV: kv}, "Dst F32 [1 4 16], Pairs F32 [1 4 16], KV F16 [1024 2 64 16]"},
	} {
		var all []string
		for name, tensor := range Operands(c.call) {
			all = append(all, fmt.Sprint(name, " ", tensor))
		}
		if got := strings.Join(all, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", Name(c.call), got, c.want)
		}
	}
}
