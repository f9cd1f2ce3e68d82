package device

// Memo is what the heads of each slot chose at earlier positions, kept so that
// a later step can read the same without looking at every key again. Positions
// come in blocks of Block; a block has an entry for each of its positions, and
// an entry of another block does not count.
//
// A set is what one head reads (as many sets as heads), or what the heads of
// one kv head read together (as many sets as kv heads).
type Memo struct {
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
	Tally Tensor

	Block    int     // positions of a block
	Relative bool    // blocks are counted from Since, otherwise from position 0
	Above    float64 // an entry can be used when its query's cosine with the row's is larger
	Chain    bool    // a step that uses an entry leaves one too, with its own query
	K        Amount  // positions that an entry chooses, of the row's position plus one
}

// Widen says what a step reads besides the positions that the entry it uses
// chose.
type Widen struct {
	Best Amount // how many of the best choices have neighbours read; a share is of the memo's K
	Near int    // neighbours on each side
	// Slid adds the positions that were in the plan's recent window of the
	// entry's own step and have left it since.
	Slid bool
}

// Reuser lets a later step read what an earlier one chose. Its call has one
// row for each slot, the newest position; q and asked f32 [rows, heads, dim].
type Reuser interface {
	// Reuse lists what each set reads between the plan's sinks and its recent
	// window, inside its span.
	//
	// First it sets Found to the entry whose choice each set uses: that of the
	// newest entry of the row's block, before the row, whose cosine with asked is
	// above Above, the least over the heads of the set. A query of length zero is
	// like no other. It notes asked as the query of the row's position.
	//
	// Then it makes an entry of the row's position for every set that found none:
	// the K best of the positions that are inside the plan's span and neither
	// in its sinks nor in its recent window, ties to the lowest position, NaN
	// and -Inf never. A set of one head ranks by q·k/√dim, a set of several by
	// the sum of its heads' softmax over the span, by its logarithm, in which no
	// share is too small beside another; 0 is the last choice. Sets that found an
	// entry are not scored. scores f32 [rows, heads, width] may be overwritten.
	//
	// A set lists what it just chose as it is, or the choice it found, widened.
	// l has a group for each row and a head for each set.
	Reuse(l List, m Memo, scores, asked, q Tensor, kv KV, p Plan, w Widen)
}

// Origin is where the block of position p starts to count, and Number the entry
// of p in it. since is the slot's element of Since.
func (m Memo) Origin(p, since int) (start, number int) {
	from := 0
	if m.Relative {
		from = min(since, p)
	}
	number = (p - from) % m.Block
	return p - number, number
}

// CheckMemo panics unless the tensors of m belong together and to rows queries
// of heads heads.
func CheckMemo(op string, m Memo, heads int, kv KV) {
	CheckKV(op, kv)
	slots := kv.Len.Dim(0)
	Check(m.Block > 0, op, "a block of %d positions, want at least 1", m.Block)
	CheckShape(op, "found", m.Found, I32, slots, -1)
	sets := m.Found.Dim(1)
	Check(sets == heads || sets == kv.K.Dim(1), op, "%d sets, want one for each of %d heads or %d kv heads", sets, heads, kv.K.Dim(1))
	CheckShape(op, "query", m.Query, F32, slots, heads*m.Block, kv.K.Dim(3))
	CheckShape(op, "entry", m.Entry, I32, slots, sets*m.Block, 3)
	CheckShape(op, "index", m.Index, I32, slots, sets*m.Block, -1)
	CheckShape(op, "since", m.Since, I32, slots, 1)
	CheckShape(op, "tally", m.Tally, I32, slots, sets, 4)
}
