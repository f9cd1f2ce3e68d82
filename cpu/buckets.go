package cpu

import "github.com/gollm/gollm/device"

// buckets is the hash tables of a device.Hash: see there for the format. A run is HashRun
// positions, whose members are either sorted by bucket or, behind the sorted ones, linked in
// chains from the newest to the oldest.
type buckets struct {
	ends    []uint16 // [slots, kvheads, runs, tables, 2, buckets]: ends, then newest
	members []uint16 // [slots, kvheads, tables, stride]
	sorted  []int32  // [slots]: positions

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

// bucketed reports whether the index has buckets.
func (b *buckets) bucketed() bool { return b.runs > 0 }

// endsOf is where the buckets of a table end in the members of a run; head counts kv heads
// over all slots.
func (b *buckets) endsOf(head, run, table int) []uint16 {
	return row(b.ends, ((head*b.runs+run)*b.tables+table)*2, 1<<b.bits)
}

// newestOf is the heads of the chains of a table in a run: 1 + index of the newest position.
func (b *buckets) newestOf(head, run, table int) []uint16 {
	return row(b.ends, ((head*b.runs+run)*b.tables+table)*2+1, 1<<b.bits)
}

// membersOf is the members of a table in a run, and those of the runs behind it.
func (b *buckets) membersOf(head, run, table int) []uint16 {
	return row(b.members, head*b.tables+table, b.stride)[run*device.HashRun:]
}

// Positions are sorted when minUnsorted of them are not, and at least one in unsortedShare of
// those that are. The newest neverSorted stay in chains, so that truncating a sequence by a
// few positions is cheap.
const (
	minUnsorted   = 64
	unsortedShare = 8
	neverSorted   = 64
)

// sortedOf is how many positions are to be sorted when done have codes and sorted are sorted.
func sortedOf(done, sorted int) int {
	n := max(0, done-neverSorted) / device.PageLen * device.PageLen
	if n-sorted >= max(minUnsorted, sorted/unsortedShare) {
		return n
	}
	return sorted
}

// unlink takes positions from to to-1 of a block out of their chains. They are the newest of
// their run and not sorted; code is the codes of the block.
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

// link puts positions from to to-1 of a block, whose codes are given, at the heads of their
// chains.
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

// sort sorts the first n positions of a run by bucket (counting sort), and empties its chains.
// code is the codes of a block of the run; all is scratch for the buckets of n positions.
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

// bucketsOf sets dst to the buckets of positions lo to hi-1 of a block, eight at a time, from
// the words of a table's planes.
func (b *buckets) bucketsOf(dst *[device.PageLen]uint16, words []uint64, lo, hi int) {
	for at := lo &^ 7; at < hi; at += 8 {
		var low, high uint64 // byte k: planes k and k+8 of eight positions
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

// transposed transposes an 8 by 8 matrix of bits: bit i of byte k becomes bit k of byte i.
func transposed(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}

// parallelChains is how many chains are followed at once, because each link is a cache miss.
const parallelChains = 16

// collisionBits is the positions of a run that collide with the query in one table, and in
// two.
type collisionBits struct{ once, twice []uint64 }

// add counts a collision of the position at index j of the run.
func (m *collisionBits) add(j int) {
	if w, bit := j/64, uint64(1)<<(j%64); w < len(m.once) && w < len(m.twice) {
		m.twice[w] |= m.once[w] & bit
		m.once[w] |= bit
	}
}

// collect marks the positions that share a bucket with the query, whose bucket in each table
// is in wanted. Above limit members it gives up, with some of them marked, and reports false.
func (b *buckets) collect(once, twice []uint64, slot, head int, wanted []uint16, limit int) bool {
	sorted := int(b.sorted[slot])
	for run := 0; run < b.runs && run*device.HashRun < len(once)*64; run++ {
		base := run * device.HashRun / 64
		m := collisionBits{once[base:], twice[base:]}
		if run*device.HashRun < sorted {
			if limit -= b.collectSorted(&m, head, run, wanted, limit); limit < 0 {
				return false
			}
		}
		if (run+1)*device.HashRun > sorted && !b.followChains(&m, head, run, wanted, &limit) {
			return false
		}
	}
	return true
}

// collectSorted is collect for the sorted members of a run; it returns how many there are. Buckets
// are looked up some at a time, and then read, because each is a cache miss.
func (b *buckets) collectSorted(m *collisionBits, head, run int, wanted []uint16, limit int) (n int) {
	for t := 0; t < b.tables && n <= limit; t += parallelChains {
		var members [parallelChains][]uint16
		first := uint16(0) // of all: their lines are loaded meanwhile
		some := members[:min(parallelChains, b.tables-t)]
		for i := range some {
			ends, bucket, lo := b.endsOf(head, run, t+i), wanted[t+i], uint16(0)
			if bucket > 0 {
				lo = ends[bucket-1]
			}
			if some[i] = b.membersOf(head, run, t+i)[lo:ends[bucket]]; len(some[i]) > 0 {
				first |= some[i][0]
			}
			n += len(some[i])
		}
		if n > limit || first > device.HashRun {
			return n
		}
		for _, bucket := range some {
			for _, j := range bucket {
				m.add(int(j))
			}
		}
	}
	return n
}

// followChains is collect for the chains of a run.
func (b *buckets) followChains(m *collisionBits, head, run int, wanted []uint16, limit *int) bool {
	for t := 0; t < b.tables; t += parallelChains {
		var next [parallelChains]uint16
		var older [parallelChains][]uint16
		live := 0 // of next and older
		for i := t; i < min(t+parallelChains, b.tables); i++ {
			if n := b.newestOf(head, run, i)[wanted[i]]; n > 0 {
				next[live], older[live] = n, b.membersOf(head, run, i)
				live++
			}
		}
		for live > 0 {
			if *limit -= live; *limit < 0 {
				return false
			}
			left := 0
			for i := range live {
				j := next[i] - 1
				m.add(int(j))
				if n := older[i][j]; n > 0 {
					next[left], older[left] = n, older[i]
					left++
				}
			}
			live = left
		}
	}
	return true
}
