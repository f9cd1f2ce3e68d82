package device

// Summarize brings what is kept about stored keys and queries up to date for the newest
// rows of each slot: an index beside the pages of the cache, or means that live for one
// pass. Rule says which.
type Summarize struct {
	Rule SummaryRule
	Dst  Tensor // what is kept; its type and shape are the rule's
	X    Tensor // f32 [rows, heads, dim], or as the rule says; absent for rules that read the cache
	KV   KV
	Rows int // newest rows of each slot, for rules that read the cache

	Block    int      // MeanRows, MeanKeys: positions of a block
	Basis    Tensor   // ProjectMeans, ProjectRows: f32 [width, dim]
	Channels Channels // KeyChannels
	Net      Net      // KeySigns
	Hash     Hash     // KeyHashes, which has its tensors
	Plan     Plan     // AttentionMass: what the rows read; no mixture
}

// SummaryRule is what a [Summarize] keeps.
type SummaryRule uint8

// The rules of Summarize.
const (
	// SumBlocks adds rows to the sums of their blocks of PageLen positions, in the order
	// of positions; a block's first position starts its sum anew. The heads of a row that
	// belong to one head of the sum are averaged.
	// Dst f32 [pages, heads, dim], X f32 [rows, any multiple of heads, dim].
	SumBlocks SummaryRule = iota
	// ProjectMeans projects the means of blocks: Dst = Basis·(X / positions).
	// Dst f32 [pages, heads, width], X f32 [pages, heads, dim] as SumBlocks makes it.
	ProjectMeans
	// ProjectRows projects the newest row of each slot as if it were the mean of its block.
	// Dst f32 [pages, heads, width], X f32 [rows, any multiple of heads, dim].
	ProjectRows
	// KeyBounds keeps the least and the largest element of the stored keys of each part of
	// a page in each dimension (Quest): PageLen/parts positions. A part without any is left.
	// Dst of the cache's type [pages, kvheads, parts, 2·dim], the least ones first.
	KeyBounds
	// KeyChannels stores some channels of the rows' keys, rounded where Channels says so
	// (Double Sparsity). Dst f16 [pages, sets, channels, PageLen], X f32 [rows, kvheads, dim].
	KeyChannels
	// KeySigns stores the signs of what a network makes of the rows' keys (HashAttention).
	// Dst i32 [pages, sets, PageLen, words], X f32 [rows, kvheads, dim].
	KeySigns
	// KeyHashes makes the LSH codes of the stored positions that have none, and that of the
	// newest (MagicPIG). Without a center it makes that first; a newest position before
	// Since lowers Since to it and starts again. One row for each slot; Dst is absent.
	KeyHashes
	// MeanRows averages the rows of each block of Block positions.
	// X f32 [rows, ...], Dst f32 [at least as many as there are blocks, ...].
	MeanRows
	// MeanKeys averages the stored keys of each block of Block positions of one slot.
	// Dst f32 [at least as many as there are blocks, kvheads, dim].
	MeanKeys
	// AttentionMass adds the softmax weights of the rows over what Plan reads, row after row
	// in the order of positions (H2O): Dst[j] += Σ weight, of all heads of a kv head, as
	// [EncodeMass] holds it. -Inf is a position that was evicted, and stays so; a row's own
	// position is new: its sum is set.
	// Dst f32 [slots, kvheads, width], X f32 [rows, heads, dim], the queries.
	AttentionMass
	numSummaryRules
)

var summaryOps = [numSummaryRules]string{
	SumBlocks: "Summarize(SumBlocks)", ProjectMeans: "Summarize(ProjectMeans)", ProjectRows: "Summarize(ProjectRows)",
	KeyBounds: "Summarize(KeyBounds)", KeyChannels: "Summarize(KeyChannels)", KeySigns: "Summarize(KeySigns)",
	KeyHashes: "Summarize(KeyHashes)", MeanRows: "Summarize(MeanRows)", MeanKeys: "Summarize(MeanKeys)",
	AttentionMass: "Summarize(AttentionMass)",
}

func (*Summarize) kind() kind   { return kindSummarize }
func (c *Summarize) op() string { return summaryOps[c.Rule] }

// Check panics unless the operands fit together.
func (c *Summarize) Check() {
	op := c.op()
	CheckKV(op, c.KV)
	switch c.Rule {
	case SumBlocks:
		CheckShape(op, "dst", c.Dst, F32, c.KV.K.Dim(0), -1, -1)
		checkHeads(op, c.X, c.Dst.Dim(1), c.Dst.Dim(2))
		RowsPerSlot(op, c.X.Dim(0), c.KV)
	case ProjectMeans:
		checkSketch(op, c.Dst, c.Basis, c.KV)
		CheckShape(op, "x", c.X, F32, c.Dst.Dim(0), c.Dst.Dim(1), c.Basis.Dim(1))
	case ProjectRows:
		checkSketch(op, c.Dst, c.Basis, c.KV)
		checkHeads(op, c.X, c.Dst.Dim(1), c.Basis.Dim(1))
		RowsPerSlot(op, c.X.Dim(0), c.KV)
	case KeyBounds:
		checkBounds(op, c.Dst, c.KV)
	case KeyChannels:
		checkChannels(op, c.Dst, c.X, c.Channels, c.KV)
	case KeySigns:
		checkNet(op, c.X, c.Net, c.KV)
		CheckShape(op, "dst", c.Dst, I32, c.KV.K.Dim(0), c.Net.Weight[0].Dim(0), PageLen, c.Net.Words())
	case KeyHashes:
		checkHash(op, c.Hash, c.KV)
	case MeanRows:
		c.checkMeanRows(op)
	case MeanKeys:
		checkOneSlot(op, c.KV)
		CheckShape(op, "dst", c.Dst, F32, -1, c.KV.K.Dim(1), c.KV.K.Dim(3))
		checkBlock(op, c.Block)
	case AttentionMass:
		checkAttend(op, c.X, c.KV, &c.Plan)
		checkKeysAreRead(op, &c.Plan)
		CheckShape(op, "dst", c.Dst, F32, c.KV.Len.Dim(0), c.KV.K.Dim(1), -1)
	}
}

// checkMeanRows panics unless the rows are of the cache, and Dst like them.
func (c *Summarize) checkMeanRows(op string) {
	checkBlock(op, c.Block)
	RowsPerSlot(op, c.X.Dim(0), c.KV)
	if c.X.Rank() < 2 || c.Dst.Rank() != c.X.Rank() {
		Check(false, op, "x %v and dst %v, want the same dimensions behind the first", c.X, c.Dst)
	}
	like := c.X.dims
	like[0] = -1
	CheckShape(op, "x", c.X, F32, like[:c.X.rank]...)
	CheckShape(op, "dst", c.Dst, F32, like[:c.X.rank]...)
}

// Access names what is read and written.
func (c *Summarize) Access(a *Access) {
	a.Read(c.KV.Pages, c.KV.Len, c.X, c.Basis)
	a.Write(c.Dst)
	switch c.Rule {
	case SumBlocks:
		a.Read(c.Dst)
	case KeyBounds, MeanKeys:
		a.Read(c.KV.K)
	case KeyChannels:
		a.Read(c.Channels.Index)
	case KeySigns:
		c.Net.access(a)
	case KeyHashes:
		a.Read(c.KV.K, c.Hash.Planes)
		c.Hash.access(a)
		a.Write(c.Hash.Codes, c.Hash.Norm, c.Hash.Center, c.Hash.Since, c.Hash.Done, c.Hash.Sorted, c.Hash.Buckets, c.Hash.Members)
	case AttentionMass:
		a.Read(c.Dst, c.KV.K)
		c.Plan.access(a)
	}
}

// Cost is the rows and what is made of them, or what is read of the cache.
func (c *Summarize) Cost(s Stored) Cost {
	cost := moved(c.X)
	kvHeads, dim := int64(c.KV.K.Dim(1)), int64(c.KV.K.Dim(3))
	switch c.Rule {
	case SumBlocks:
		cost.Ops = int64(c.X.Len())
	case ProjectMeans:
		return sketchCost(c.blocks(), c.Dst, c.Basis)
	case ProjectRows:
		return sketchCost(c.KV.Len.Dim(0), c.Dst, c.Basis)
	case KeyBounds:
		parts := int64(c.Dst.Dim(2)) * int64(c.Dst.DType.RowSize(c.Dst.Dim(3)))
		return Cost{Bytes: int64(c.blocks()) * kvHeads * (c.KV.rowBytes(PageLen) + parts)}
	case KeyChannels:
		cost.Bytes += int64(c.X.Dim(0)*c.Dst.Dim(1)*c.Dst.Dim(2)) * 2
	case KeySigns:
		cost.Add(c.Net.cost(c.X.Dim(0)))
		cost.Bytes += int64(c.X.Dim(0)*c.Dst.Dim(1)*c.Net.Words()) * 4
	case KeyHashes: // of the newest positions: how many have none is over when it is asked
		n, planes := kvHeads*int64(c.KV.Len.Dim(0)), int64(c.Hash.Planes.Dim(0))
		cost = moved(c.Hash.Planes)
		cost.Bytes += c.KV.rowBytes(n) + n*planes/8
		cost.Ops = 2 * n * planes * dim
	case MeanRows:
		cost.Ops = int64(c.X.Len())
	case MeanKeys:
		n := s.past(c.KV, 1) * kvHeads
		cost.Bytes += c.KV.rowBytes(n) + 4*dim*kvHeads*s.blocks(c.KV, 1, c.Block).stored
		cost.Ops = n * dim
	case AttentionMass:
		r := s.reads(&c.Plan, c.KV, c.X.Dim(0), c.X.Dim(1))
		cost.Bytes += c.KV.rowBytes(r.rows) + 8*r.rows
		cost.Ops = 2 * dim * r.pairs
	}
	return cost
}

// blocks is how many blocks of PageLen positions the rows of all slots lie in at most.
func (c *Summarize) blocks() int { return blocksOf(c.KV, c.Rows) }

// sketchCost is that of n projections for each head of dst.
func sketchCost(n int, dst, basis Tensor) Cost {
	each := int64(dst.Dim(1)) * int64(n)
	return Cost{
		Bytes: int64(basis.Size()) + 4*each*int64(basis.Dim(0)+basis.Dim(1)),
		Ops:   2 * each * int64(basis.Len()),
	}
}
