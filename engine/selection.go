package engine

import (
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
)

// Selection is what the rows of one layer of one pass read: a plan whose lists
// have been copied to the host.
type Selection struct {
	Layer  int
	Decode bool
	Slot   int   // prefill: whose rows; in decode row i is of slot i
	Pos    []int // by row: its position; -1 where an idle slot has none
	Heads  int   // query heads

	plan   device.Plan
	apart  bool // rows are of different slots and share no list
	stride int  // entries of index between two lists
	index  []int32
	count  []int32
	weight []float32 // nil: one each
}

// Dense reports whether every row reads its whole past.
func (s *Selection) Dense() bool { return s.plan.Dense() }

// Plan is the plan; its tensors belong to the device.
func (s *Selection) Plan() device.Plan { return s.plan }

// Keys lists the positions that a row and a query head read, ascending, and the
// weight of each in the softmax, 1 for a plain key. With Plan().Mixture the
// weights are the softmax itself.
func (s *Selection) Keys(row, head int) (keys []int32, weights []float32) {
	p := s.Pos[row]
	if p < 0 {
		return nil, nil
	}
	list, listed := s.List(row, head)
	for j := 0; j <= p; j++ {
		w := s.weightOf(p, j, list, listed)
		if w != 0 {
			keys, weights = append(keys, int32(j)), append(weights, w)
		}
	}
	return keys, weights
}

// List is the entries of the list of a row and head as they are: positions or
// blocks, and weights, nil for one each.
func (s *Selection) List(row, head int) (index []int32, weights []float32) {
	if s.index == nil {
		return nil, nil
	}
	groups, width, capacity := s.plan.List.Index.Dim(0), s.plan.List.Index.Dim(1), s.plan.List.Index.Dim(2)
	n := max(s.plan.List.Group, 1)
	group := s.Pos[row]/n - s.Pos[0]/n
	if s.apart {
		group = row
	}
	if group < 0 || group >= groups {
		return nil, nil
	}
	at := group*width + head*width/s.Heads
	have := min(max(int(s.count[at]), 0), capacity)
	index = s.index[at*s.stride:][:have]
	if s.weight != nil {
		weights = s.weight[at*s.stride:][:have]
	}
	return index, weights
}

// weightOf is the weight of position j for the row at p; 0 is not read.
func (s *Selection) weightOf(p, j int, index []int32, weights []float32) float32 {
	plan := &s.plan
	if !plan.Span.Sees(p, j) {
		return 0
	}
	if plan.Selected == device.All || j < plan.Sink || j >= recentFrom(plan, p) {
		return 1
	}
	entry := int32(j)
	switch plan.Selected {
	case device.Blocks:
		entry = int32(j / device.PageLen)
	case device.None:
		return 0
	}
	i, found := slices.BinarySearch(index, entry)
	switch {
	case !found:
		return 0
	case weights == nil:
		return 1
	}
	return weights[i]
}

// recentFrom is where the recent window of the row at p begins.
func recentFrom(plan *device.Plan, p int) int {
	if plan.Align > 0 {
		return p - p%plan.Align - plan.Recent
	}
	return p + 1 - plan.Recent
}

// selectionTracer reads the plans of eager passes back.
type selectionTracer struct {
	dev     device.Device
	heads   int
	observe func(Selection)
}

// Begin does nothing.
func (*selectionTracer) Begin(*sparse.Pass, int, device.Tensor, device.Tensor) {}

// Planned reads the plan back.
func (t *selectionTracer) Planned(p *sparse.Pass, layer int, plan device.Plan) {
	s := readSelection(t.dev, p.KV(layer), p.Rows(), plan)
	s.Layer, s.Decode, s.Slot, s.Heads = layer, p.Decode, p.Slot, t.heads
	t.observe(s)
}

// Attended does nothing.
func (*selectionTracer) Attended(*sparse.Pass, int, device.Tensor, device.Tensor, device.Plan) {}

// readSelection copies a plan for rows of kv to the host. It waits; a failure
// sticks to the device and is reported by its next Sync.
func readSelection(dev device.Device, kv device.KV, rows int, plan device.Plan) Selection {
	s := Selection{plan: plan, Pos: rowPositions(dev, kv, rows), apart: kv.Len.Dim(0) > 1}
	if plan.Selected != device.Blocks && plan.Selected != device.Tokens {
		return s
	}
	l := plan.List
	s.stride = l.Index.Dim(2)
	s.index, s.count = make([]int32, l.Index.Len()), make([]int32, l.Count.Len())
	_ = read(dev, s.index, l.Index)
	_ = read(dev, s.count, l.Count)
	if !l.Weight.Absent() {
		s.weight = make([]float32, l.Weight.Len())
		_ = read(dev, s.weight, l.Weight)
	}
	return s
}

// readFilled is readSelection list by list, without the room behind their entries: on a
// device whose memory is the host's that is less to copy.
func readFilled(dev device.Device, kv device.KV, rows int, plan device.Plan) Selection {
	if plan.Selected != device.Blocks && plan.Selected != device.Tokens {
		return readSelection(dev, kv, rows, plan)
	}
	l := plan.List
	lists, capacity := l.Index.Dim(0)*l.Index.Dim(1), l.Index.Dim(2)
	s := Selection{plan: plan, Pos: rowPositions(dev, kv, rows), apart: kv.Len.Dim(0) > 1, count: make([]int32, l.Count.Len())}
	_ = read(dev, s.count, l.Count)
	for _, n := range s.count {
		s.stride = max(s.stride, min(int(n), capacity))
	}
	s.index = make([]int32, lists*s.stride)
	index, weight := l.Index.Reshape(l.Index.Len()), l.Weight
	if !weight.Absent() {
		s.weight, weight = make([]float32, lists*s.stride), weight.Reshape(weight.Len())
	}
	for i, n := range s.count {
		from, at := i*capacity, i*s.stride
		have := min(max(int(n), 0), capacity)
		_ = read(dev, s.index[at:at+have], index.Rows(from, from+have))
		if s.weight != nil {
			_ = read(dev, s.weight[at:at+have], weight.Rows(from, from+have))
		}
	}
	return s
}

// rowPositions is the position of each row of a call, -1 for those of idle slots:
// rows of one slot are its last, and rows of several slots are the last of each.
func rowPositions(dev device.Device, kv device.KV, rows int) []int {
	lens := make([]int32, kv.Len.Dim(0))
	_ = read(dev, lens, kv.Len)
	pos := make([]int, rows)
	for i := range pos {
		if len(lens) == 1 {
			pos[i] = int(lens[0]) - rows + i
		} else {
			pos[i] = int(lens[i]) - 1
		}
	}
	return pos
}
