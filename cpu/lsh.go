package cpu

import (
	"math"
	"unsafe"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// hashIndex is a device.Hash with its tensors looked up.
type hashIndex struct {
	device.Hash
	buckets
	kernel func(dst, q []float32, k, ahead vec.Rows, heads, n, dim int)
	normal []float32 // [planes, dim]: of the hyperplanes
	codes  []uint64  // [slots, kvheads, blocks, planes]: a word of PageLen bits for each plane
	norm   []float32 // [slots, kvheads, width]: of keys less the center
	center []float32 // [slots, kvheads, dim]

	planes, blocks, width, kvHeads, dim int
}

func (o *ops) hashIndex(h device.Hash, kv device.KV) hashIndex {
	t := hashIndex{
		Hash: h, kernel: o.vec.Scores, normal: f32s(h.Planes), norm: f32s(h.Norm), center: f32s(h.Center),
		buckets: newBuckets(h), planes: h.Planes.Dim(0), width: h.Norm.Dim(2), kvHeads: kv.K.Dim(1), dim: h.Planes.Dim(1),
	}
	t.blocks = h.Codes.Dim(1) / t.kvHeads
	if c := bytesOf(h.Codes); len(c) > 0 {
		t.codes = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(c))), len(c)/8)
	}
	if t.dim%vec.Multiple != 0 || t.planes < vec.Tile {
		t.kernel = vec.Go.Scores
	}
	return t
}

// capacity is how many positions of a slot there is room for.
func (h *hashIndex) capacity() int { return min(h.width, h.blocks*device.PageLen) }

// code is the codes of a block: a word for each plane.
func (h *hashIndex) code(slot, kvHead, block int) []uint64 {
	return row(h.codes, (slot*h.kvHeads+kvHead)*h.blocks+block, h.planes)
}

// project multiplies n vectors with all planes, and calls f for each tile of at most vec.Tile
// planes, from plane first on. The last two tiles may overlap. x f32 [n, dim], tile f32
// [n, vec.Tile].
func (h *hashIndex) project(tile, x []float32, n int, f func(first, planes int)) {
	for first := 0; first < h.planes; first += vec.Tile {
		if h.planes >= vec.Tile { // the kernel reads full tiles
			first = min(first, h.planes-vec.Tile)
		}
		m := min(vec.Tile, h.planes-first)
		h.kernel(tile, x, vec.Rows{Full: h.normal[first*h.dim : (first+m)*h.dim]}, vec.Rows{}, n, m, h.dim)
		f(first, m)
	}
}

// aboveZero is 1 for a number above zero, otherwise 0. It is exact for sums, which are never
// -0.
func aboveZero(x float32) uint64 { return uint64(uint32(-int32(math.Float32bits(x))) >> 31) }
