package device

// Cost is a lower bound of the traffic and arithmetic of a call. The roofline limit is the larger
// of Bytes over the memory bandwidth and Ops over the arithmetic peak, see [Roofline].
type Cost struct {
	Bytes int64 // of device memory, every operand once
	Ops   int64 // a multiply-add counts as two
	Int8  int64 // the part of Ops that is products with quantized weights
}

// Add adds o.
func (c *Cost) Add(o Cost) {
	c.Bytes += o.Bytes
	c.Ops += o.Ops
	c.Int8 += o.Int8
}

// moved is the cost of reading or writing each tensor once.
func moved(t ...Tensor) (c Cost) {
	for _, t := range t {
		c.Bytes += int64(t.Size())
	}
	return c
}

// Stored reads an i32 tensor back after a call has run: lengths and lists, on which costs depend.
// With nil, costs count only operands whose size is known from their shape, still a lower bound.
type Stored func(t Tensor) []int32

// CostOf is the cost of fused calls: the sum of their costs, without the traffic of a tensor that
// one of them writes and a [Discard] among them makes undefined.
func CostOf(calls []Call, costs []Cost) (all Cost) {
	for i, c := range calls {
		all.Add(costs[i])
		if d, ok := c.(*Discard); ok {
			all.Bytes -= fusedBytes(calls[:i], d.T)
		}
	}
	all.Bytes = max(all.Bytes, 0)
	return all
}

// fusedBytes is the traffic of a tensor in calls, from the first write after its last Discard
// on.
func fusedBytes(calls []Call, t Tensor) (n int64) {
	var a Access
	written := false
	for _, c := range calls {
		if d, ok := c.(*Discard); ok && d.T == t {
			n, written = 0, false
			continue
		}
		a.Reset()
		c.Access(&a)
		if written {
			n += int64(count(a.Reads, t) * t.Size())
		}
		if writes := count(a.Writes, t); writes > 0 {
			n, written = n+int64(writes*t.Size()), true
		}
	}
	return n
}

func count(all []Tensor, t Tensor) (n int) {
	for _, x := range all {
		if x == t {
			n++
		}
	}
	return n
}

// positions is the position of each of n rows of a call, -1 for idle slots: the last n positions
// of one slot, or the last position of each of several. nil is unknown.
func (s Stored) positions(kv KV, n int) []int {
	if s == nil {
		return nil
	}
	lens := s(kv.Len)
	if len(lens) == 0 {
		return nil
	}
	pos := make([]int, n)
	for i := range pos {
		if len(lens) == 1 {
			pos[i] = int(lens[0]) - n + i
		} else {
			pos[i] = int(lens[i]) - 1
		}
	}
	return pos
}
