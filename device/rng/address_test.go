package rng

import "testing"

// The known answers that the authors of Philox publish with Random123.
func TestPhiloxKnownAnswers(t *testing.T) {
	const f = 0xffffffff
	tests := []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{f, f, f, f}, [2]uint32{f, f}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	}
	for _, tt := range tests {
		if got := Philox(tt.ctr, tt.key); got != tt.want {
			t.Errorf("Philox(%x, %x) = %x, want %x", tt.ctr, tt.key, got, tt.want)
		}
	}
}

func TestAddressesDoNotCollide(t *testing.T) {
	seen := map[[4]uint32]Address{}
	for layer := range uint32(3) {
		for head := range uint32(3) {
			for pos := range uint32(3) {
				for _, p := range []Purpose{ForToken, ForPilot, ForKeys} {
					d := Address{Seed: 7, Layer: layer, Head: head, Pos: pos, Purpose: p, Request: 2}
					for i := range uint32(3) {
						w := d.Words(i)
						if o, dup := seen[w]; dup {
							t.Fatalf("%+v and %+v share %x", d, o, w)
						}
						seen[w] = d
					}
				}
			}
		}
	}
}

func TestUniformIsInRangeAndEven(t *testing.T) {
	d := Address{Seed: 1}
	var buckets [16]int
	const n = 16000
	for i := range uint32(n) {
		u := d.Uniform(i)
		if u < 0 || u >= 1 {
			t.Fatalf("Uniform(%d) = %v", i, u)
		}
		buckets[int(u*16)]++
	}
	for i, c := range buckets {
		if c < n/16-150 || c > n/16+150 { // 5 standard deviations
			t.Errorf("bucket %d has %d of %d", i, c, n)
		}
	}
}
