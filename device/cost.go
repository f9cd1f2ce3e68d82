package device

// Cost is a lower bound of what a call takes: its roofline is the larger of Bytes over
// the memory's rate and the operations over the arithmetic's; see [Peaks].
type Cost struct {
	Bytes int64 // to and from device memory, every operand once
	Ops   int64 // a multiplication with its addition counts as two
	Int8  int64 // of Ops: those of products with quantized weights
}

// Add adds another cost.
func (c *Cost) Add(o Cost) {
	c.Bytes += o.Bytes
	c.Ops += o.Ops
	c.Int8 += o.Int8
}

// moved is the cost of a call that reads or writes each of the tensors once.
func moved(t ...Tensor) (c Cost) {
	for _, t := range t {
		c.Bytes += int64(t.Size())
	}
	return c
}

// Stored reads an i32 tensor back: lengths, and the lists that a device has chosen, on
// which costs depend. It is asked when the call has run. Without it, nil, such costs
// are those of the operands whose sizes are known, a lower bound still.
type Stored func(t Tensor) []int32

// CostOf is the cost of calls that are computed at once, of their own costs: all of them,
// but for the traffic of a tensor that one of them writes and a [Discard] among them ends.
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

// fusedBytes is what calls move of a tensor from where they write it, since it was last
// discarded.
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

// positions is the position of each of n rows of a call, -1 for those of idle slots:
// rows of one slot are its last, and rows of several slots are the last of each. nil is
// unknown.
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
