package device

// SelectionCache keeps the selections of earlier positions of each slot, so that a later step
// with a similar query can attend to the same positions without scoring every key (CIS, HShare).
// Positions are in blocks of Block; the cache has an entry for each position of the newest block,
// and entries of other blocks are invalid.
//
// A head group is a query head, or the query heads of a kv head.
type SelectionCache struct {
	Query Tensor // f32 [slots, heads·Block, dim]: the query of each entry
	// Entry i32 [slots, head groups·Block, 3]: the entry's position plus one, 0 for none; the
	// number in its block of the entry that holds its selection, possibly itself; and the
	// length of that selection.
	Entry Tensor
	Index Tensor // i32 [slots, head groups·Block, cap]: the selected positions, those that get [Neighbors] first
	Since Tensor // i32 [slots, 1]: entries of positions before it are invalid
	Found Tensor // i32 [slots, head groups]: the entry that this step reuses, -1 for none
	// Counters i32 [slots, head groups, 4]: steps, selections made, and positions scored as a
	// 64-bit number, low word first.
	Counters Tensor

	Block     int     // positions of a block
	Relative  bool    // blocks start at Since, otherwise at position 0
	MinCosine float64 // an entry is reused if the cosine of its query and the row's is larger
	Chain     bool    // a step that reuses an entry makes one too, with its own query
	K         Amount  // positions that are selected, of the row's position plus one
}

// Neighbors says what a step attends to besides the selection that it reuses.
type Neighbors struct {
	Best Amount // how many of the best selected positions get neighbors; a share is of the cache's K
	Each int    // neighbors on each side
	// KeepSlid adds the positions that were in the recent window of the plan when the entry was
	// made, and have left it since.
	KeepSlid bool
}

// Origin is the first position of the block of position p, and the number of p in it. since is
// the slot's element of Since.
func (m SelectionCache) Origin(p, since int) (start, number int) {
	from := 0
	if m.Relative {
		from = min(since, p)
	}
	number = (p - from) % m.Block
	return p - number, number
}

// ReuseSelection selects what each head group attends to in the selected region of the plan: the
// selection of an earlier row of the same slot if the queries are similar, or a new one (CIS's
// clustered index sharing). One row for each slot, the newest position.
//
//  1. Look up. Cache.Found is the newest entry of the row's block, before the row, whose query
//     has a cosine with Compared above Cache.MinCosine, the minimum over the heads of the group;
//     -1 if there is none. A zero query matches nothing. Compared is stored as the query of the
//     row's entry.
//  2. Select, for groups without an entry: the K best positions of the selected region, inside
//     the span, ties to the lowest position, NaN and -Inf never. A group of one head ranks by
//     q·k/√dim; a group of several ranks by ln Σ softmax over its heads, each over its span, which
//     does not underflow; a position without mass in any head is ranked last. Groups that found an
//     entry are not scored.
//     With Keys, both rank by the scores of [MirrorScores] in place of q·k/√dim.
//  3. List: a new selection as it is, a reused one with Neighbors.
//
// The plan attends to the list afterwards: Plan.List is List.
type ReuseSelection struct {
	List      List // a group for each row, a head for each head group
	Cache     SelectionCache
	Scores    Tensor // f32 [rows, heads, width]; may be overwritten
	Compared  Tensor // f32 [rows, heads, dim]: the queries as they are compared
	Q         Tensor // f32 [rows, heads, dim]
	Keys      Tensor // low-bit keys of [KeyMirror]; absent: those of the cache
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
	CheckLike(op, "compared", c.Compared, c.Q)
	CheckShape(op, "scores", c.Scores, F32, rows, heads, -1)
	checkOneRow(op, rows, c.KV)
	checkList(op, "list", &c.List, rows, c.Cache.Found.Dim(1))
	if !c.Keys.Absent() {
		checkMirror(op, c.Keys, c.KV)
	}
}

// check panics unless the tensors of m fit together and fit kv and queries of that many heads.
func (m *SelectionCache) check(op string, heads int, kv KV) {
	slots := kv.Len.Dim(0)
	checkBlock(op, m.Block)
	checkAmount(op, "the best", m.K)
	CheckShape(op, "found", m.Found, I32, slots, -1)
	groups := m.Found.Dim(1)
	if groups != heads && groups != kv.K.Dim(1) {
		Check(false, op, "%d head groups, want one for each of %d heads or %d kv heads", groups, heads, kv.K.Dim(1))
	}
	CheckShape(op, "query", m.Query, F32, slots, heads*m.Block, kv.K.Dim(3))
	CheckShape(op, "entry", m.Entry, I32, slots, groups*m.Block, 3)
	CheckShape(op, "index", m.Index, I32, slots, groups*m.Block, -1)
	CheckShape(op, "since", m.Since, I32, slots, 1)
	CheckShape(op, "counters", m.Counters, I32, slots, groups, 4)
}

// Access names what is read and written.
func (c *ReuseSelection) Access(a *Access) {
	m := &c.Cache
	keys := c.KV.K
	if !c.Keys.Absent() {
		keys = c.Keys
	}
	a.Read(c.Q, c.Compared, keys, c.KV.Pages, c.KV.Len, m.Query, m.Entry, m.Index, m.Since, m.Counters)
	a.Write(m.Query, m.Entry, m.Index, m.Found, m.Counters, c.Scores)
	c.List.write(a)
}

// Cost is the queries, the keys of the selected region for the head groups that found no entry,
// and the lists.
func (c *ReuseSelection) Cost(s Stored) Cost {
	cost := moved(c.Q, c.Compared)
	cost.Bytes += s.listBytes(&c.List, c.KV, c.Q.Dim(0))
	groups, kvHeads := c.Cache.Found.Dim(1), c.KV.K.Dim(1)
	for slot, pos := range s.positions(c.KV, c.Q.Dim(0)) {
		lo, hi := c.Plan.between(pos)
		n := c.Plan.Span.count(pos, lo, hi)
		read := -1 // the last kv head whose keys are read
		for group, found := range s(c.Cache.Found.Rows(slot, slot+1)) {
			if found >= 0 || pos < 0 {
				continue
			}
			cost.Ops += 2 * int64(n*c.Q.Dim(1)/groups*c.Q.Dim(2))
			if head := group * kvHeads / groups; head > read {
				read = head
				cost.Bytes += c.keyBytes(n)
			}
		}
	}
	return cost
}

// keyBytes is the size of n keys of a kv head, as they are ranked.
func (c *ReuseSelection) keyBytes(n int) int64 {
	if c.Keys.Absent() {
		return c.KV.rowBytes(int64(n))
	}
	return 4 * int64(n*c.Keys.Dim(2))
}

var kindReuseSelection = register[ReuseSelection]()

func (*ReuseSelection) kind() kind { return kindReuseSelection }
