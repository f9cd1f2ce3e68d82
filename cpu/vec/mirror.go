package vec

import "math"

// MirrorQueries are queries of 8 bits, as the products with low-bit keys take them.
type MirrorQueries struct {
	// Words [heads][n+1]: four signed bytes in a word, of consecutive elements, and what undoes
	// the offset of the bytes of the keys: minus 128 (or 8 for keys of 4 bits) times their sum.
	Words []int32
	Units []float32 // [heads]: factors of the scores
}

// row is the words of a head.
func (q MirrorQueries) row(h int) []int32 {
	n := len(q.Words) / len(q.Units)
	return q.Words[h*n : (h+1)*n]
}

// From is the heads from h on.
func (q MirrorQueries) From(h int) MirrorQueries {
	n := len(q.Words) / len(q.Units)
	return MirrorQueries{q.Words[h*n:], q.Units[h:]}
}

// mirrorBits is the bits of an element of keys k [words+1][Tile].
func mirrorBits(q MirrorQueries, k []int32) int {
	return 8 * (len(k)/Tile - 1) / (len(q.Words)/len(q.Units) - 1)
}

func mirrorScores(dst []float32, q MirrorQueries, k, _ []int32) {
	words, bits := len(k)/Tile-1, mirrorBits(q, k)
	for h, unit := range q.Units {
		x := q.row(h)
		for j := range Tile {
			sum := x[len(x)-1]
			for w := range words {
				word := uint32(k[w*Tile+j])
				if bits == 8 {
					sum += bytesDot(x[w], word)
					continue
				}
				sum += bytesDot(x[2*w], word&0x0f0f0f0f) + bytesDot(x[2*w+1], word>>4&0x0f0f0f0f)
			}
			dst[h*Tile+j] = float32(sum) * math.Float32frombits(uint32(k[words*Tile+j])) * unit
		}
	}
}

// bytesDot is the product of four signed bytes with four unsigned ones.
func bytesDot(q int32, k uint32) (sum int32) {
	for i := range 4 {
		sum += int32(int8(q>>(8*i))) * int32(uint8(k>>(8*i)))
	}
	return sum
}
