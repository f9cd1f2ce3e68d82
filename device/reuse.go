package device

// SelectionCache is what the heads of each slot chose at earlier positions, kept so that
// a later step can read the same without looking at every key again. Positions
// come in blocks of Block; a block has an entry for each of its positions, and
// an entry of another block does not count.
//
// A set is what one head reads (as many sets as heads), or what the heads of
// one kv head read together (as many sets as kv heads).
type SelectionCache struct {
	Query Tensor // f32 [slots, heads·Block, dim]: the query of each entry
	// Entry i32 [slots, sets·Block, 3]: the entry's position plus one, 0 for no
	// entry; the number in its block of the entry whose choice it uses, itself
	// included; and how many positions it chose.
	Entry Tensor
	Index Tensor // i32 [slots, sets·Block, most]: the positions chosen, best first
	Since Tensor // i32 [slots, 1]: entries of positions before it do not count
	Found Tensor // i32 [slots, sets]: of this step: the entry to use, -1 for none
	// Tally i32 [slots, sets, 4] counts up: steps, choices made, and positions
	// scored as a 64-bit number, low word first.
	Counters Tensor

	Block     int     // positions of a block
	Relative  bool    // blocks are counted from Since, otherwise from position 0
	MinCosine float64 // an entry can be used when its query's cosine with the row's is larger
	Chain     bool    // a step that uses an entry leaves one too, with its own query
	K         Amount  // positions that an entry chooses, of the row's position plus one
}

// Widen says what a step reads besides the positions that the entry it uses
// chose.
type Neighbors struct {
	Best Amount // how many of the best choices have neighbours read; a share is of the memo's K
	Each int    // neighbours on each side
	// Slid adds the positions that were in the plan's recent window of the
	// entry's own step and have left it since.
	KeepSlid bool
}

// Origin is where the block of position p starts to count, and Number the entry
// of p in it. since is the slot's element of Since.
func (m SelectionCache) Origin(p, since int) (start, number int) {
	from := 0
	if m.Relative {
		from = min(since, p)
	}
	number = (p - from) % m.Block
	return p - number, number
}

// ReuseSelection lists what each set reads between the plan's sinks and its recent window,
// inside its span: what an earlier row of the same slot chose while the queries are alike,
// or a choice of its own. It has one row for each slot, the newest position.
//
// First it sets SelectionCache.Found to the entry whose choice each set uses: that of the newest entry
// of the row's block, before the row, whose cosine with Asked is above SelectionCache.Above, the least
// over the heads of the set. A query of length zero is like no other. It notes Asked as the
// query of the row's position.
//
// Then it makes an entry of the row's position for every set that found none: the K best of
// the positions that are inside the plan's span and neither in its sinks nor in its recent
// window, ties to the lowest position, NaN and -Inf never. A set of one head ranks by
// q·k/√dim, a set of several by the sum of its heads' softmax over the span, by its
// logarithm, in which no share is too small beside another; 0 is the last choice. Sets that
// found an entry are not scored.
//
// A set lists what it just chose as it is, or the choice it found, widened. The plan reads
// the list afterwards: Plan.List is List.
type ReuseSelection struct {
	List      List // a group for each row and a head for each set
	Cache     SelectionCache
	Scores    Tensor // f32 [rows, heads, width]; may be overwritten
	Compared  Tensor // f32 [rows, heads, dim]: what queries are compared by
	Q         Tensor // f32 [rows, heads, dim]
	KV        KV
	Plan      Plan
	Neighbors Neighbors
}

// Check panics unless the operands fit together.
func (c *ReuseSelection) Check() {
	const op = "ReuseSelection"
	checkHeadsOf(op, c.Q, c.KV)
	rows, heads := c.Q.Dim(0), c.Q.Dim(1)
	c.Cache.check(op, heads, c.KV)
	CheckLike(op, "asked", c.Compared, c.Q)
	CheckShape(op, "scores", c.Scores, F32, rows, heads, -1)
	checkOneRow(op, rows, c.KV)
	checkList(op, "list", &c.List, rows, c.Cache.Found.Dim(1))
}

// check panics unless the tensors of m belong together and to rows queries of heads heads.
func (m *SelectionCache) check(op string, heads int, kv KV) {
	slots := kv.Len.Dim(0)
	checkBlock(op, m.Block)
	CheckShape(op, "found", m.Found, I32, slots, -1)
	sets := m.Found.Dim(1)
	if sets != heads && sets != kv.K.Dim(1) {
		Check(false, op, "%d head groups, want one for each of %d heads or %d kv heads", sets, heads, kv.K.Dim(1))
	}
	CheckShape(op, "query", m.Query, F32, slots, heads*m.Block, kv.K.Dim(3))
	CheckShape(op, "entry", m.Entry, I32, slots, sets*m.Block, 3)
	CheckShape(op, "index", m.Index, I32, slots, sets*m.Block, -1)
	CheckShape(op, "since", m.Since, I32, slots, 1)
	CheckShape(op, "tally", m.Counters, I32, slots, sets, 4)
}

// Access names what is read and written.
func (c *ReuseSelection) Access(a *Access) {
	m := &c.Cache
	a.Read(c.Q, c.Compared, c.KV.K, c.KV.Pages, c.KV.Len, m.Query, m.Entry, m.Index, m.Since, m.Counters)
	a.Write(m.Query, m.Entry, m.Index, m.Found, m.Counters, c.Scores)
	c.List.write(a)
}

// Cost is the queries, the keys between sinks and window of the sets that found nothing, and
// the lists.
func (c *ReuseSelection) Cost(s Stored) Cost {
	cost := moved(c.Q, c.Compared)
	cost.Bytes += s.listBytes(&c.List, c.KV, c.Q.Dim(0))
	sets, kvHeads := c.Cache.Found.Dim(1), c.KV.K.Dim(1)
	for slot, pos := range s.positions(c.KV, c.Q.Dim(0)) {
		lo, hi := c.Plan.between(pos)
		n := c.Plan.Span.count(pos, lo, hi)
		read := -1 // the last kv head whose keys are read
		for set, found := range s(c.Cache.Found.Rows(slot, slot+1)) {
			if found >= 0 || pos < 0 {
				continue
			}
			cost.Ops += 2 * int64(n*c.Q.Dim(1)/sets*c.Q.Dim(2))
			if head := set * kvHeads / sets; head > read {
				read = head
				cost.Bytes += c.KV.rowBytes(int64(n))
			}
		}
	}
	return cost
}

func (*ReuseSelection) kind() kind { return kindReuseSelection }
