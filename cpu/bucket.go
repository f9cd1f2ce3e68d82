package cpu

import "github.com/gollm/gollm/device"

// buckets is the buckets of a device.Hash: for each run of positions, each table
// and each bucket a chain of positions, the newest first.
type buckets struct {
	newest []uint16 // [slots, kvheads, runs, tables, buckets]
	older  []uint16 // [slots, kvheads, tables, stride]

	runs, tables, bits, stride int
}

func newBuckets(h device.Hash) buckets {
	b := buckets{tables: h.Tables, bits: h.Bits()}
	if h.Linked() {
		b.newest, b.older = as[uint16](bytesOf(h.Newest)), as[uint16](bytesOf(h.Older))
		b.runs, b.stride = (h.Norm.Dim(2)+device.HashRun-1)/device.HashRun, 2*h.Older.Dim(2)
	}
	return b
}

// linked reports whether there are any.
func (b *buckets) linked() bool { return b.runs > 0 }

// newestOf is the chains of a run of a kv head, [tables, buckets]; head counts
// over all slots.
func (b *buckets) newestOf(head, run int) []uint16 {
	return row(b.newest, head*b.runs+run, b.tables<<b.bits)
}

// olderOf is the links of a table in a run.
func (b *buckets) olderOf(head, table, run int) []uint16 {
	return row(b.older, head*b.tables+table, b.stride)[run*device.HashRun:]
}

// unlink takes positions from to to-1 of a block, whose codes are given and which
// are the newest of their run, out of their buckets.
func (b *buckets) unlink(head, from, to int, code []uint64) {
	run, block := from/device.HashRun, from/device.PageLen*device.PageLen
	newest := b.newestOf(head, run)
	var bucket [device.PageLen]uint16
	for t := range b.tables {
		b.bucketsOf(&bucket, row(code, t, b.bits), from-block, to-block)
		chain, older := row(newest, t, 1<<b.bits), b.olderOf(head, t, run)
		for j := to - 1; j >= from; j-- {
			chain[bucket[j-block]] = older[j%device.HashRun]
		}
	}
}

// link puts positions j to j+n-1 of a block, whose codes are given, into their
// buckets.
func (b *buckets) link(head, j, n int, code []uint64) {
	run, at := j/device.HashRun, j%device.HashRun
	newest := b.newestOf(head, run)
	if at == 0 {
		clear(newest)
	}
	var bucket [device.PageLen]uint16
	from := j % device.PageLen
	for t := range b.tables {
		b.bucketsOf(&bucket, row(code, t, b.bits), from, from+n)
		chain, older := row(newest, t, 1<<b.bits), b.olderOf(head, t, run)[at:at+n]
		for i := range older {
			c := &chain[bucket[from+i]]
			older[i], *c = *c, uint16(at+i+1)
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

// walk marks the positions that are in a bucket of the query's in one table, and
// those that are in two. wanted are the query's buckets, by table. It reports false,
// and has marked only some, when there are more than limit links to follow.
func (b *buckets) walk(once, twice []uint64, head int, wanted []uint16, limit int) bool {
	for run := range b.runs {
		if run*device.HashRun >= len(once)*64 {
			break
		}
		base := run * device.HashRun / 64
		one, two := once[base:], twice[base:]
		newest := b.newestOf(head, run)
		for t := 0; t < b.tables; t += walks {
			var next [walks]uint16
			var older [walks][]uint16
			live := 0 // of next and older
			for i := t; i < min(t+walks, b.tables); i++ {
				if n := newest[i<<b.bits|int(wanted[i])]; n > 0 {
					next[live], older[live] = n, b.olderOf(head, i, run)
					live++
				}
			}
			for live > 0 {
				limit -= live
				if limit < 0 {
					return false
				}
				keep := 0
				for i := range live {
					j := int(next[i]) - 1
					if w, bit := j/64, uint64(1)<<(j%64); w < len(one) && w < len(two) {
						two[w] |= one[w] & bit
						one[w] |= bit
					}
					if n := older[i][j]; n > 0 {
						next[keep], older[keep] = n, older[i]
						keep++
					}
				}
				live = keep
			}
		}
	}
	return true
}
