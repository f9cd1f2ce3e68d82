package device

// Channels are the numbers of a vector that its label has. A set is a head, or
// the heads of a kv head.
type Channels struct {
	Index Tensor // i32 [sets, n]: below the length of a head
	// Levels, when above 1, rounds the numbers of a label to so many steps, evenly
	// from its least number to its largest, halves to even.
	Levels int
}

// MostLayers is the most layers that a [Net] has.
const MostLayers = 4

// Net is a small network for each set: layers y = x·Wᵀ + b with a function
// between them. Unused layers are absent. The signs of its result are bits: bit
// i%32 of word i/32 says that number i is above zero.
type Net struct {
	Weight [MostLayers]Tensor // f32 [sets, out, in]
	Bias   [MostLayers]Tensor // f32 [sets, out]
	Relu   bool               // max(0, y), otherwise y / (1 + exp(-y))
}

// Layers is the number of layers.
func (n Net) Layers() int {
	for i, w := range n.Weight {
		if w.Absent() {
			return i
		}
	}
	return MostLayers
}

// Bits is how many numbers the network gives.
func (n Net) Bits() int { return n.Weight[n.Layers()-1].Dim(1) }

// Words is how many 32-bit words the signs take.
func (n Net) Words() int { return (n.Bits() + 31) / 32 }

// Labeler ranks positions by labels, which are shorter than keys and lie beside
// the pages. Scores are of the middle of a plan, as [Ranker]'s are; they are -Inf
// elsewhere. Labels and signs are of the sets of the Channels or the key's Net:
// as many as query heads or as kv heads.
type Labeler interface {
	// StoreChannels stores the labels of the call's keys at their positions.
	// labels f16 [pages, sets, n, PageLen], x f32 [rows, kvheads, dim].
	StoreChannels(labels, x Tensor, c Channels, kv KV)
	// ChannelScores computes label(q)·label / √dim, q not in f16.
	// dst f32 [rows, heads, width], q f32 [rows, heads, dim].
	ChannelScores(dst, q, labels Tensor, c Channels, kv KV, p Plan)
	// StoreSigns stores the signs of what the network makes of the call's keys.
	// signs i32 [pages, sets, PageLen, words], x f32 [rows, kvheads, dim].
	StoreSigns(signs, x Tensor, n Net, kv KV)
	// SignScores counts the signs that agree with those of what the network makes
	// of the queries, less those that differ; the network has a set for each head.
	// dst f32 [rows, heads, width], q f32 [rows, heads, dim].
	SignScores(dst, q, signs Tensor, n Net, kv KV, p Plan)
}

// CheckChannels panics unless the labels belong to c and kv, and rows of heads
// heads can be stored or compared.
func CheckChannels(op string, labels, x Tensor, c Channels, kv KV) {
	CheckKV(op, kv)
	CheckShape(op, "x", x, F32, -1, -1, kv.K.Dim(3))
	CheckShape(op, "channels", c.Index, I32, -1, -1)
	sets := c.Index.Dim(0)
	CheckShape(op, "labels", labels, F16, kv.K.Dim(0), sets, c.Index.Dim(1), PageLen)
	checkSets(op, sets, x.Dim(1), kv)
	RowsPerSlot(op, x.Dim(0), kv)
}

// CheckChannelScores panics unless the arguments of ChannelScores fit together.
func CheckChannelScores(dst, q, labels Tensor, c Channels, kv KV, p Plan) {
	const op = "ChannelScores"
	CheckChannels(op, labels, q, c, kv)
	CheckShape(op, "dst", dst, F32, q.Dim(0), q.Dim(1), -1)
	checkMiddle(op, p)
}

// CheckNet panics unless signs belong to n and kv, and the network takes x.
func CheckNet(op string, x Tensor, n Net, kv KV) {
	CheckKV(op, kv)
	CheckShape(op, "x", x, F32, -1, -1, kv.K.Dim(3))
	RowsPerSlot(op, x.Dim(0), kv)
	if n.Layers() == 0 {
		Check(false, op, "a network without layers")
	}
	sets, width := n.Weight[0].Dim(0), x.Dim(2)
	for i := range n.Layers() {
		CheckShape(op, "weight", n.Weight[i], F32, sets, -1, width)
		width = n.Weight[i].Dim(1)
		CheckShape(op, "bias", n.Bias[i], F32, sets, width)
	}
	checkSets(op, sets, x.Dim(1), kv)
}

// CheckStoreSigns panics unless the arguments of StoreSigns fit together.
func CheckStoreSigns(signs, x Tensor, n Net, kv KV) {
	const op = "StoreSigns"
	CheckNet(op, x, n, kv)
	CheckShape(op, "signs", signs, I32, kv.K.Dim(0), n.Weight[0].Dim(0), PageLen, n.Words())
}

// CheckSignScores panics unless the arguments of SignScores fit together.
func CheckSignScores(dst, q, signs Tensor, n Net, kv KV, p Plan) {
	const op = "SignScores"
	CheckNet(op, q, n, kv)
	CheckShape(op, "dst", dst, F32, q.Dim(0), q.Dim(1), -1)
	CheckShape(op, "signs", signs, I32, kv.K.Dim(0), -1, PageLen, n.Words())
	if sets := signs.Dim(1); n.Weight[0].Dim(0) != q.Dim(1) || q.Dim(1)%sets != 0 {
		Check(false, op, "a network of %d sets and signs of %d for %d heads, want one for each head and a divisor", n.Weight[0].Dim(0), sets, q.Dim(1))
	}
	checkMiddle(op, p)
}

// checkSets panics unless sets and heads are multiples one of the other, and of
// the kv heads.
func checkSets(op string, sets, heads int, kv KV) {
	n := kv.K.Dim(1)
	if sets%n != 0 || heads%n != 0 || sets%heads != 0 && heads%sets != 0 {
		Check(false, op, "%d sets for %d heads over %d kv heads, want multiples", sets, heads, n)
	}
}
