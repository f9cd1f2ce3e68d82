package cpu

import "github.com/gollm/gollm/device"

// buckets is the buckets of a device.Hash.
type buckets struct {
	ends    []uint16 // [slots, kvheads, runs, tables, 2, buckets]: ends, then newest
	members []uint16 // [slots, kvheads, tables, stride]
	sorted  []int32  // [slots]

	runs, tables, bits, stride int
}

func newBuckets(h device.Hash) buckets {
	b := buckets{tables: h.Tables, bits: h.Bits()}
	if h.Bucketed() {
		b.ends, b.members, b.sorted = as[uint16](bytesOf(h.Buckets)), as[uint16](bytesOf(h.Members)), i32s(h.Sorted)
		b.runs, b.stride = (h.Norm.Dim(2)+device.HashRun-1)/device.HashRun, 2*h.Members.Dim(2)
	}
	return b
}

// bucketed reports whether there are any.
func (b *buckets) bucketed() bool { return b.runs > 0 }

// endsOf is where the buckets of a table in a run end, and newestOf their newest
// positions; head counts over all slots.
func (b *buckets) endsOf(head, run, table int) []uint16 {
	return row(b.ends, ((head*b.runs+run)*b.tables+table)*2, 1<<b.bits)
}

func (b *buckets) newestOf(head, run, table int) []uint16 {
	return row(b.ends, ((head*b.runs+run)*b.tables+table)*2+1, 1<<b.bits)
}

// membersOf is the positions of a table in a run.
func (b *buckets) membersOf(head, run, table int) []uint16 {
	return row(b.members, head*b.tables+table, b.stride)[run*device.HashRun:]
}

// Positions are sorted once there are so many that are not, or a share of one of
// sortShare of those that are. The newest sortLoose never are, so that a sequence
// can take a few back for little.
const (
	sortLeast = 64
	sortShare = 8
	sortLoose = 64
)

// sortedOf is how many positions are sorted once done have codes, when sorted
// were before.
func sortedOf(done, sorted int) int {
	n := max(0, done-sortLoose) / device.PageLen * device.PageLen
	if n-sorted >= max(sortLeast, sorted/sortShare) {
		return n
	}
	return sorted
}

// unlink takes positions from to to-1 of a block, whose codes are given and which
// are the newest of their run and not sorted, out of their buckets.
func (b *buckets) unlink(head, from, to int, code []uint64) {
	run, block := from/device.HashRun, from/device.PageLen*device.PageLen
	var bucket [device.PageLen]uint16
	for t := range b.tables {
		b.bucketsOf(&bucket, row(code, t, b.bits), from-block, to-block)
		newest, older := b.newestOf(head, run, t), b.membersOf(head, run, t)
		for j := to - 1; j >= from; j-- {
			newest[bucket[j-block]] = older[j%device.HashRun]
		}
	}
}

// link puts positions from to to-1 of a block, whose codes are given, into their
// buckets.
func (b *buckets) link(head, from, to int, code []uint64) {
	run, at, block := from/device.HashRun, from%device.HashRun, from/device.PageLen*device.PageLen
	var bucket [device.PageLen]uint16
	for t := range b.tables {
		newest, older := b.newestOf(head, run, t), b.membersOf(head, run, t)
		if at == 0 {
			clear(newest)
		}
		b.bucketsOf(&bucket, row(code, t, b.bits), from-block, to-block)
		for j := from; j < to; j++ {
			c := &newest[bucket[j-block]]
			older[j%device.HashRun], *c = *c, uint16(j%device.HashRun+1)
		}
	}
}

// sort sorts the first n positions of a run, and empties its chains. code is
// the codes of a block of the run, and all has room for n numbers of buckets.
func (b *buckets) sort(head, run, n int, all []uint16, code func(block int) []uint64) {
	for t := range b.tables {
		ends := b.endsOf(head, run, t)
		clear(ends)
		clear(b.newestOf(head, run, t))
		for at := 0; at < n; at += device.PageLen {
			var bucket [device.PageLen]uint16
			some := min(device.PageLen, n-at)
			b.bucketsOf(&bucket, row(code(at/device.PageLen), t, b.bits), 0, some)
			copy(all[at:], bucket[:some])
			for _, c := range bucket[:some] {
				ends[c]++
			}
		}
		sum := uint16(0)
		for i, c := range ends {
			ends[i] = sum
			sum += c
		}
		members := b.membersOf(head, run, t)
		for i, c := range all[:n] {
			members[ends[c]] = uint16(i)
			ends[c]++
		}
	}
}

// bucketsOf is the buckets of positions lo to hi-1 of a block, by eights, from the
// words of a table's planes.
func (b *buckets) bucketsOf(dst *[device.PageLen]uint16, words []uint64, lo, hi int) {
	for at := lo &^ 7; at < hi; at += 8 {
		var low, high uint64 // byte k is plane k, and k+8, of eight positions
		for k, w := range words[:min(8, len(words))] {
			low |= w >> at & 255 << (8 * k)
		}
		for k, w := range words[min(8, len(words)):] {
			high |= w >> at & 255 << (8 * k)
		}
		low, high = transposed(low), transposed(high)
		for i := range 8 {
			dst[at+i] = uint16(low>>(8*i)&255 | high>>(8*i)&255<<8)
		}
	}
}

// transposed swaps rows and columns of an 8 by 8 matrix of bits: bit i of byte k
// becomes bit k of byte i.
func transposed(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}

// A walk along a chain waits for memory at each link, so walks goes along so many
// at once.
const walks = 16

// marks is the positions of a run that are in a bucket of the query's in one table,
// and in two.
type marks struct{ once, twice []uint64 }

func (m *marks) add(j int) {
	if w, bit := j/64, uint64(1)<<(j%64); w < len(m.once) && w < len(m.twice) {
		m.twice[w] |= m.once[w] & bit
		m.once[w] |= bit
	}
}

// collect marks the positions that share a bucket with the query. wanted are the
// query's buckets, by table. It reports false, and has marked only some, when there
// are more than limit.
func (b *buckets) collect(once, twice []uint64, slot, head int, wanted []uint16, limit int) bool {
	sorted := int(b.sorted[slot])
	for run := 0; run < b.runs && run*device.HashRun < len(once)*64; run++ {
		base := run * device.HashRun / 64
		m := marks{once[base:], twice[base:]}
		if run*device.HashRun < sorted {
			for t, bucket := range wanted {
				ends, lo := b.endsOf(head, run, t), uint16(0)
				if bucket > 0 {
					lo = ends[bucket-1]
				}
				some := b.membersOf(head, run, t)[lo:ends[bucket]]
				if limit -= len(some); limit < 0 {
					return false
				}
				for _, j := range some {
					m.add(int(j))
				}
			}
		}
		if (run+1)*device.HashRun > sorted && !b.walk(&m, head, run, wanted, &limit) {
			return false
		}
	}
	return true
}

// walk is collect for what is not sorted of a run.
func (b *buckets) walk(m *marks, head, run int, wanted []uint16, limit *int) bool {
	for t := 0; t < b.tables; t += walks {
		var next [walks]uint16
		var older [walks][]uint16
		live := 0 // of next and older
		for i := t; i < min(t+walks, b.tables); i++ {
			if n := b.newestOf(head, run, i)[wanted[i]]; n > 0 {
				next[live], older[live] = n, b.membersOf(head, run, i)
				live++
			}
		}
		for live > 0 {
			if *limit -= live; *limit < 0 {
				return false
			}
			keep := 0
			for i := range live {
				j := next[i] - 1
				m.add(int(j))
				if n := older[i][j]; n > 0 {
					next[keep], older[keep] = n, older[i]
					keep++
				}
			}
			live = keep
		}
	}
	return true
}
