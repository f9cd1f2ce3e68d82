package device

// Fuser is an optional ability of [Ops]: what a method of attention does around it, in
// one trip through memory with it. A method returns false, having done nothing,
// where the call does not suit it. The definition of each is the function of this
// package that its comment names, which everybody calls.
type Fuser interface {
	// FuseSampleAttend is [SampleAttend].
	FuseSampleAttend(dst, q Tensor, kv KV, p Plan, d Draws) bool
	// FuseReuseAttend is [ReuseAttend].
	FuseReuseAttend(dst Tensor, l List, m Memo, scores, asked, q Tensor, kv KV, p Plan, w Widen) bool
}

// SampleAttend attends to values drawn of what the plan p reads: what SampleValues
// lists of it, as a mixture. l is as for SampleValues and may hold anything afterwards.
func SampleAttend(ops Ops, dst Tensor, l List, q Tensor, kv KV, p Plan, d Draws) {
	if f, ok := ops.(Fuser); ok && f.FuseSampleAttend(dst, q, kv, p, d) {
		return
	}
	ops.SampleValues(l, q, kv, p, d)
	Do(ops, Attend{Dst: dst, Q: q, KV: kv, Plan: Plan{Span: p.Span, Middle: Tokens, List: l, Mixture: true}})
}

// ReuseAttend attends to what the sets of the plan p read: what Reuse lists in l, which
// afterwards has their numbers and may have any positions.
func ReuseAttend(ops Ops, dst Tensor, l List, m Memo, scores, asked, q Tensor, kv KV, p Plan, w Widen) {
	if f, ok := ops.(Fuser); ok && f.FuseReuseAttend(dst, l, m, scores, asked, q, kv, p, w) {
		return
	}
	ops.Reuse(l, m, scores, asked, q, kv, p, w)
	p.Middle, p.List = Tokens, l
	Do(ops, Attend{Dst: dst, Q: q, KV: kv, Plan: p})
}
