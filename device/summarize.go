package device

// Summarize updates an index of the stored keys (or queries) for the newest rows of each slot: it
// is stored beside the pages of the cache, or lives for one pass. Dst elements of other positions
// are unchanged. Rows of idle slots are skipped.
type Summarize struct {
	Rule SummaryRule
	Dst  Tensor // the index; type and shape as the rule says
	X    Tensor // f32 [rows, heads, dim], or as the rule says; absent for rules that read the cache
	KV   KV
	Rows int // newest rows of each slot, for rules that read the cache

	Block    int      // MeanRows, MeanKeys: positions of a block
	Basis    Tensor   // ProjectMeans, ProjectRows: f32 [width, dim]
	Channels Channels // KeyChannels
	Net      Net      // KeySigns
	Hash     Hash     // KeyHashes, which has its tensors
	Plan     Plan     // AttentionMass: what the rows attend to; no mixture
}

// SummaryRule is what a [Summarize] computes.
type SummaryRule uint8

// The rules of Summarize.
const (
	// SumBlocks accumulates rows into sums over blocks of PageLen positions (Sketch&Walk), in
	// the order of positions; the first position of a block overwrites its sum. Heads of a row
	// that share a head of the sum are averaged.
	// Dst f32 [pages, heads, dim], X f32 [rows, any multiple of heads, dim].
	SumBlocks SummaryRule = iota
	// ProjectMeans projects block means to sketches (Sketch&Walk): Dst = Basis·(X/n), n being
	// the stored positions of the block.
	// Dst f32 [pages, heads, width], X f32 [pages, heads, dim], the sums of SumBlocks.
	ProjectMeans
	// ProjectRows projects the newest row of each slot in place of the mean of its block.
	// Dst f32 [pages, heads, width], X f32 [rows, any multiple of heads, dim].
	ProjectRows
	// KeyBounds is the element-wise minimum and maximum of the stored keys of each part of a
	// page, a part being PageLen/parts positions (Quest, Tang et al. 2024). A part without
	// positions is left alone. A key with a NaN makes that element undefined.
	// Dst of the cache's type [pages, kvheads, parts, 2·dim], minima first.
	KeyBounds
	// KeyChannels stores selected channels of the rows' keys as labels, optionally rounded to
	// Channels.Levels (Double Sparsity, Yang et al. 2024).
	// Dst f16 [pages, head groups, channels, PageLen], X f32 [rows, kvheads, dim].
	KeyChannels
	// KeySigns stores the sign bits of Net applied to the rows' keys (HashAttention, Desai et
	// al. 2024). Dst i32 [pages, head groups, PageLen, words], X f32 [rows, kvheads, dim].
	KeySigns
	// KeyMirror keeps a low-bit copy of the stored keys of the newest Rows positions, of 8 or 4
	// bits, see [MirrorWords]: each key rotated, and rounded with one scale ([MirrorScores] ranks
	// by it). Dst i32 [pages, kvheads, words, PageLen].
	//
	//  - Rotation: an unnormalized Walsh-Hadamard transform of blocks of [MirrorBlock] elements, in
	//    f32: for h = 1, 2, 4, ... below the block, (a, b) h apart become (a+b, a-b). It spreads
	//    channels that are larger than the others, and keeps products but for the factor
	//    MirrorBlock.
	//  - Rounding, with L = 127 or 7 and m the largest magnitude: the scale is m/L, and element x
	//    becomes the integer nearest to x·(L/m), ties to even, each operation in f32. Below 2^-100
	//    m counts as 0, and scale and elements are 0; of a key that is not finite the scale is NaN.
	//  - Layout: word w of a position has elements 4w to 4w+3, or of 4 bits 8w to 8w+7, plus 128
	//    or 8. Byte b is element 4w+b, or 8w+b in its low half and 8w+4+b in its high half. The
	//    last word is the bits of the scale.
	KeyMirror
	// KeyHashes computes the LSH codes of the stored positions from Hash.Done on (MagicPIG,
	// Chen et al. 2024). Without a center (Done 0) it computes the center first. A newest
	// position before Since lowers Since to it and starts again. One row for each slot; Dst is
	// absent, the tensors are those of Hash.
	KeyHashes
	// MeanRows averages the rows of the call that are in the same block of Block positions.
	// X f32 [rows, ...], Dst f32 [at least the number of blocks, ...]; blocks are numbered as
	// the groups of a [List].
	MeanRows
	// MeanKeys averages the stored keys of each block of Block positions of one slot.
	// Dst f32 [at least the number of blocks, kvheads, dim].
	MeanKeys
	// AttentionMass accumulates attention probabilities per key (H2O, Zhang et al. 2023):
	// Dst[j] += Σ softmax over the rows, in the order of positions, and over the heads of a kv
	// head, over what Plan reads. Dst is encoded by [EncodeMass]; -Inf marks an evicted
	// position and stays; the element of a row's own position is overwritten.
	// Dst f32 [slots, kvheads, width], X f32 [rows, heads, dim], the queries.
	AttentionMass
	numSummaryRules
)

var summaryOps = [numSummaryRules]string{
	SumBlocks: "Summarize(SumBlocks)", ProjectMeans: "Summarize(ProjectMeans)", ProjectRows: "Summarize(ProjectRows)",
	KeyBounds: "Summarize(KeyBounds)", KeyChannels: "Summarize(KeyChannels)", KeySigns: "Summarize(KeySigns)",
	KeyMirror: "Summarize(KeyMirror)",
	KeyHashes: "Summarize(KeyHashes)", MeanRows: "Summarize(MeanRows)", MeanKeys: "Summarize(MeanKeys)",
	AttentionMass: "Summarize(AttentionMass)",
}

var kindSummarize = register[Summarize]()

func (*Summarize) kind() kind { return kindSummarize }

func (c *Summarize) op() string {
	checkRule("Summarize", "rule", c.Rule, numSummaryRules)
	return summaryOps[c.Rule]
}

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
	case KeyMirror:
		checkMirror(op, c.Dst, c.KV)
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
		checkNoMixture(op, &c.Plan)
		CheckShape(op, "dst", c.Dst, F32, c.KV.Len.Dim(0), c.KV.K.Dim(1), -1)
	}
}

// checkMeanRows panics unless X has the rows of the call and Dst its shape but for the first dimension.
func (c *Summarize) checkMeanRows(op string) {
	checkBlock(op, c.Block)
	if c.X.Rank() < 2 || c.Dst.Rank() != c.X.Rank() {
		Check(false, op, "x %v and dst %v, want the same dimensions after the first", c.X, c.Dst)
	}
	RowsPerSlot(op, c.X.Dim(0), c.KV)
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
	case KeyBounds, KeyMirror, MeanKeys:
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

// Cost is the rows and the index entries written, or the keys read.
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
	case KeyMirror:
		n := kvHeads * int64(c.KV.Len.Dim(0)*c.Rows)
		return Cost{Bytes: c.KV.rowBytes(n) + 4*n*int64(c.Dst.Dim(2))}
	case KeyHashes: // of the newest positions: Done was updated when the cost is computed
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

// blocks is the maximum number of pages that the rows of all slots are in.
func (c *Summarize) blocks() int { return blocksOf(c.KV, c.Rows) }

// sketchCost is the cost of n projections for each head of dst.
func sketchCost(n int, dst, basis Tensor) Cost {
	each := int64(dst.Dim(1)) * int64(n)
	return Cost{
		Bytes: int64(basis.Size()) + 4*each*int64(basis.Dim(0)+basis.Dim(1)),
		Ops:   2 * each * int64(basis.Len()),
	}
}
