package cpu

import (
	"math"
	"math/bits"
	"slices"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// label copies the channels of a vector, rounded to levels.
func label(dst, x []float32, index []int32, levels int) {
	for i, c := range index {
		dst[i] = 0
		if c >= 0 && int(c) < len(x) {
			dst[i] = x[c]
		}
	}
	if levels <= 1 {
		return
	}
	low, high := slices.Min(dst), slices.Max(dst)
	if !(high > low) {
		return
	}
	step := (high - low) / float32(levels-1)
	for i, v := range dst {
		dst[i] = low + step*float32(math.RoundToEven(float64((v-low)/step)))
	}
}

// keyChannels stores the labels of the call's keys at their positions.
func (o *ops) keyChannels(labels, x device.Tensor, c device.Channels, kv device.KV) {
	const op = "KeyChannels"
	g, index, heads, dim := newPages(kv), i32s(c.Index), x.Dim(1), x.Dim(2)
	sets, n := c.Index.Dim(0), c.Index.Dim(1)
	out := elements[uint16](labels)
	t := &o.channel
	t.one, t.half = grown(&t.one, n), grown(&t.half, n)
	o.eachRow(op, kv, x.Dim(0), func(r, slot, _, p int) {
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 {
			return
		}
		for set := range sets {
			label(t.one, row(f32s(x), r*heads+set*heads/sets, dim), row(index, set, n), c.Levels)
			o.vec.ToHalf(t.half, t.one)
			to := out[(page*sets+set)*n*device.PageLen+p%device.PageLen:]
			for i, v := range t.half {
				to[i*device.PageLen] = v
			}
		}
	})
}

// channelScores computes the products of labels over the middle of a plan.
func (o *ops) channelScores(dst, q, labels device.Tensor, c device.Channels, kv device.KV, p device.Plan) {
	const op = "ChannelScores"
	t := &o.channel
	t.middleScores = o.middles(op, t.middleScores, dst, q, kv, p)
	t.labels, t.index, t.levels = elements[uint16](labels), i32s(c.Index), c.Levels
	t.sets, t.n = c.Index.Dim(0), c.Index.Dim(1)
	t.run = max(1, t.heads/t.sets)
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, channelScratch{})
	}
	rows := (t.run + vec.TileRows - 1) / vec.TileRows * vec.TileRows
	for i := range t.scratch {
		s := &t.scratch[i]
		s.q, s.label, s.scores = grown(&s.q, rows*t.n), grown(&s.label, t.n*vec.Tile), grown(&s.scores, rows*vec.Tile)
	}
	o.pool.RunChunks(len(t.rows)*t.heads/t.run, 1, t)
}

// middleScores is rows of scores over the middle of a plan.
type middleScores struct {
	o          *ops
	pages      pages
	reach      reach
	dst        []float32 // [rows, heads, width]
	width      int
	q          []float32 // [rows, heads, dim]
	heads, dim int
	rows       []tailRow
}

// middles looks up the arguments of a call; was is those of the last one.
func (o *ops) middles(op string, was middleScores, dst, q device.Tensor, kv device.KV, p device.Plan) middleScores {
	t := middleScores{o: o, pages: newPages(kv), reach: reach{p}, dst: f32s(dst), width: dst.Dim(2),
		q: f32s(q), heads: q.Dim(1), dim: q.Dim(2), rows: was.rows[:0]}
	perSlot := device.RowsPerSlot(op, q.Dim(0), kv)
	for r := range q.Dim(0) {
		t.rows = append(t.rows, o.tailRow(op, &t.pages, r/perSlot, r%perSlot, perSlot, t.width))
	}
	return t
}

// middle is the positions of a page that the row at p ranks.
func (t *middleScores) middle(p, b int) uint64 {
	return t.reach.spannedBits(p, b) &^ t.reach.edgeBits(p, b)
}

// page is the number of page b of a slot.
func (t *middleScores) page(slot, b int) int { return int(t.pages.table[slot*t.pages.width+b]) }

// put writes the scores of a page: x where middle has a bit, -Inf elsewhere.
func put(dst, x []float32, middle uint64) {
	if len(dst) == device.PageLen && middle == ^uint64(0) {
		copy(dst, x)
		return
	}
	for i := range dst {
		dst[i] = negInf
		if middle>>i&1 != 0 {
			dst[i] = x[i]
		}
	}
}

// channelTask is ChannelScores: item i is the run of heads i%runs of row i/runs.
type channelTask struct {
	middleScores
	labels  []uint16 // [pages, sets, n, PageLen]
	index   []int32  // [sets, n]
	levels  int
	sets, n int
	run     int // heads that share a set

	scratch []channelScratch
	one     []float32 // [n]: of KeyChannels
	half    []uint16  // [n]
}

// channelScratch is what one worker needs.
type channelScratch struct {
	q      []float32 // [run in whole vec.TileRows, n]
	label  []float32 // [n, vec.Tile]
	scores []float32 // [run in whole vec.TileRows, vec.Tile]
}

// Do scores items lo to hi-1.
func (t *channelTask) Do(worker, lo, hi int) {
	runs := t.heads / t.run
	for i := lo; i < hi; i++ {
		if t.rows[i/runs].p >= 0 {
			t.score(&t.scratch[worker], i/runs, i%runs*t.run)
		}
	}
}

// score scores a run of heads of a row.
func (t *channelTask) score(s *channelScratch, r, head int) {
	at, set := t.rows[r], head*t.sets/t.heads
	scale := float32(1 / math.Sqrt(float64(t.dim)))
	clear(s.q)
	for u := range t.run {
		q := row(s.q, u, t.n)
		label(q, row(t.q, r*t.heads+head+u, t.dim), row(t.index, set, t.n), t.levels)
		for i := range q {
			q[i] *= scale
		}
	}
	c, q, k := vec.Matrix{Data: s.scores, Stride: vec.Tile}, vec.Matrix{Data: s.q, Stride: t.n}, vec.Matrix{Data: s.label, Stride: vec.Tile}
	for b := range pagesOf(at.p + 1) {
		middle, first := t.middle(at.p, b), b*device.PageLen
		if middle != 0 {
			t.o.vec.FromHalf(s.label, row(t.labels, t.page(at.slot, b)*t.sets+set, t.n*device.PageLen))
			for u := 0; u < t.run; u += vec.TileRows {
				t.o.vec.Multiply(c.From(u, 0), q.From(u, 0), k, nil, t.n, vec.Tile)
			}
		}
		for u := range t.run {
			out := row(t.dst, r*t.heads+head+u, t.width)[first:min(first+device.PageLen, at.p+1)]
			put(out, row(s.scores, u, vec.Tile), middle)
		}
	}
}

// net is a device.Net with its tensors looked up.
type net struct {
	device.Net
	weight, bias [device.MaxLayers][]float32
	sets, layers int
	words        int
	widest       int // numbers between layers
	scratch      []netScratch
}

// netScratch is what one worker needs.
type netScratch struct {
	x, y   []float32 // [vec.Tile, widest]
	tile   []float32 // [vec.Tile, vec.Tile]
	weight []float32 // [vec.Tile, widest]: what does not fill a tile
}

// net looks up a network for workers; was is the one of the last call.
func (o *ops) net(n device.Net, was net) net {
	t := net{Net: n, sets: n.Weight[0].Dim(0), layers: n.Layers(), words: n.Words(), widest: n.Weight[0].Dim(2), scratch: was.scratch}
	for i := range t.layers {
		t.weight[i], t.bias[i] = f32s(n.Weight[i]), f32s(n.Bias[i])
		t.widest = max(t.widest, n.Weight[i].Dim(1))
	}
	for len(t.scratch) < o.pool.Workers() {
		t.scratch = append(t.scratch, netScratch{})
	}
	for i := range t.scratch {
		s := &t.scratch[i]
		s.x, s.y, s.weight = grown(&s.x, vec.Tile*t.widest), grown(&s.y, vec.Tile*t.widest), grown(&s.weight, vec.Tile*t.widest)
		s.tile = grown(&s.tile, vec.Tile*vec.Tile)
	}
	return t
}

// run puts n vectors, which lie in s.x one after the other, through the network
// of a set; the results lie there after it.
func (t *net) run(o *ops, s *netScratch, set, n int) (out []float32, width int) {
	for l := range t.layers {
		w := t.Weight[l]
		rows, in := w.Dim(1), w.Dim(2)
		t.product(o, s, t.weight[l][set*rows*in:(set+1)*rows*in], n, rows, in)
		bias := row(t.bias[l], set, rows)
		for i := range n {
			y := row(s.y, i, rows)
			for j := range y {
				y[j] += bias[j]
			}
			if l < t.layers-1 {
				t.bend(y)
			}
		}
		s.x, s.y, width = s.y, s.x, rows
	}
	return s.x, width
}

// bend is the function between layers.
func (t *net) bend(y []float32) {
	for j, v := range y {
		if t.Relu {
			y[j] = max(v, 0)
		} else {
			y[j] = float32(float64(v) / (1 + math.Exp(-float64(v))))
		}
	}
}

// product sets s.y [n, rows] to s.x·wᵀ. The kernel wants whole tiles of rows.
func (t *net) product(o *ops, s *netScratch, w []float32, n, rows, in int) {
	kernel := o.vec.Scores
	if in%vec.Multiple != 0 {
		kernel = vec.Go.Scores
	}
	for first := 0; first < rows; first += vec.Tile {
		m := min(vec.Tile, rows-first)
		some := w[first*in : (first+m)*in]
		if m < vec.Tile {
			copy(s.weight, some)
			some = s.weight[:vec.Tile*in]
		}
		kernel(s.tile, s.x, vec.Rows{Full: some}, vec.Rows{}, n, m, in)
		for i := range n {
			copy(row(s.y, i, rows)[first:first+m], row(s.tile, i, vec.Tile))
		}
	}
}

// signsOf sets the words of a result.
func signsOf(dst []int32, y []float32) {
	clear(dst)
	for i, v := range y {
		if v > 0 {
			dst[i/32] |= 1 << (i % 32)
		}
	}
}

// keySigns stores the signs of the call's keys at their positions.
func (o *ops) keySigns(signs, x device.Tensor, n device.Net, kv device.KV) {
	const op = "KeySigns"
	t := &o.encode
	t.net = o.net(n, t.net)
	t.o, t.pages, t.signs, t.x = o, newPages(kv), i32s(signs), f32s(x)
	t.heads, t.dim, t.perSlot = x.Dim(1), x.Dim(2), device.RowsPerSlot(op, x.Dim(0), kv)
	t.tiles = (x.Dim(0) + vec.Tile - 1) / vec.Tile
	t.rows = x.Dim(0)
	o.pool.RunChunks(t.tiles*t.sets, 1, t)
}

// signTask is KeySigns: item i is set i%sets of a tile of rows.
type signTask struct {
	net
	o                    *ops
	pages                pages
	signs                []int32   // [pages, sets, PageLen, words]
	x                    []float32 // [rows, heads, dim]
	heads, dim           int
	rows, perSlot, tiles int
}

// Do stores items lo to hi-1.
func (t *signTask) Do(worker, lo, hi int) {
	s := &t.scratch[worker]
	for i := lo; i < hi; i++ {
		set, first := i%t.sets, i/t.sets*vec.Tile
		n := min(vec.Tile, t.rows-first)
		for r := range n {
			copy(s.x[r*t.dim:], row(t.x, (first+r)*t.heads+set*t.heads/t.sets, t.dim))
		}
		y, width := t.run(t.o, s, set, n)
		for r := range n {
			t.store(first+r, set, row(y, r, width))
		}
	}
}

// store keeps the signs of a row's key.
func (t *signTask) store(r, set int, y []float32) {
	slot := r / t.perSlot
	first, ok := t.o.first("KeySigns", &t.pages, slot, t.perSlot)
	if !ok {
		return
	}
	p := first + r%t.perSlot
	if page := t.o.page(&t.pages, slot, p/device.PageLen); page >= 0 {
		signsOf(row(t.signs, (page*t.sets+set)*device.PageLen+p%device.PageLen, t.words), y)
	}
}

// signScores compares signs over the middle of a plan.
func (o *ops) signScores(dst, q, signs device.Tensor, n device.Net, kv device.KV, p device.Plan) {
	const op = "SignScores"
	t := &o.match
	t.net = o.net(n, t.net)
	t.middleScores = o.middles(op, t.middleScores, dst, q, kv, p)
	t.signs, t.keySets = i32s(signs), signs.Dim(1)
	for len(t.own) < o.pool.Workers() {
		t.own = append(t.own, matchScratch{})
	}
	for i := range t.own {
		s := &t.own[i]
		s.word, s.score = grown(&s.word, t.words), grown(&s.score, device.PageLen)
	}
	o.pool.RunChunks(len(t.rows)*t.heads, 1, t)
}

// matchTask is SignScores: item i is head i%heads of row i/heads.
type matchTask struct {
	net
	middleScores
	signs   []int32 // [pages, keySets, PageLen, words]
	keySets int
	own     []matchScratch
}

// matchScratch is what one worker needs besides the network's.
type matchScratch struct {
	word  []int32   // [words]: of the query
	score []float32 // [PageLen]
}

// Do scores items lo to hi-1.
func (t *matchTask) Do(worker, lo, hi int) {
	s, own := &t.scratch[worker], &t.own[worker]
	for i := lo; i < hi; i++ {
		r, head := i/t.heads, i%t.heads
		if t.middleScores.rows[r].p < 0 {
			continue
		}
		copy(s.x, row(t.q, i, t.dim))
		y, width := t.run(t.o, s, head, 1)
		signsOf(own.word, y[:width])
		t.score(own, r, head, width)
	}
}

// score compares a query's signs with those of keys.
func (t *matchTask) score(s *matchScratch, r, head, width int) {
	at, set := t.middleScores.rows[r], head*t.keySets/t.heads
	for b := range pagesOf(at.p + 1) {
		middle, first := t.middle(at.p, b), b*device.PageLen
		if middle != 0 {
			signs := row(t.signs, t.page(at.slot, b)*t.keySets+set, device.PageLen*t.words)
			for i := range s.score {
				differ := 0
				for w, word := range s.word {
					differ += bits.OnesCount32(uint32(word ^ signs[i*t.words+w]))
				}
				s.score[i] = float32(width - 2*differ)
			}
		}
		put(row(t.dst, r*t.heads+head, t.width)[first:min(first+device.PageLen, at.p+1)], s.score, middle)
	}
}
