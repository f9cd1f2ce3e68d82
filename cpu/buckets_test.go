package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// TestBucketsOfCodes compares the transposition of eight positions at a time with single bits.
func TestBucketsOfCodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for bits := 1; bits <= 12; bits++ {
		b := buckets{bits: bits}
		words := make([]uint64, bits)
		for i := range words {
			words[i] = rng.Uint64()
		}
		for _, span := range [][2]int{{0, 64}, {3, 4}, {63, 64}, {7, 9}, {16, 24}} {
			var got [device.PageLen]uint16
			b.bucketsOf(&got, words, span[0], span[1])
			for i := span[0]; i < span[1]; i++ {
				var want uint16
				for k, w := range words {
					want |= uint16(w>>i&1) << k
				}
				if got[i] != want {
					t.Fatalf("%d bits, position %d of %v: bucket %b, want %b", bits, i, span, got[i], want)
				}
			}
		}
	}
}

// hashTest is one slot, with two heads of one kv head, whose codes are in buckets and not.
type hashTest struct {
	t       *testing.T
	dev     *dev
	kv      device.KV
	q       device.Tensor
	codes   device.Hash
	buckets device.Hash
	lists   [2]device.List
}

const hashDim = 16

func newHashTest(t *testing.T, capacity, tables, bits, collisions int) *hashTest {
	d := open(2, vec.Best())
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	alloc := func(dt device.DType, dims ...int) device.Tensor {
		x, err := d.Alloc(dt, dims...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	blocks, planes := pagesOf(capacity), tables*bits
	h := &hashTest{t: t, dev: d, q: alloc(device.F32, 1, 2, hashDim)}
	h.kv = device.KV{K: alloc(device.F32, blocks, 1, device.PageLen, hashDim), Pages: alloc(device.I32, 1, blocks), Len: alloc(device.I32, 1)}
	h.kv.V = h.kv.K
	for i := range blocks {
		i32s(h.kv.Pages)[i] = int32(i)
	}
	normals := alloc(device.F32, planes, hashDim)
	fill(normals, rand.New(rand.NewPCG(3, 4)))
	for i, hash := range []*device.Hash{&h.codes, &h.buckets} {
		*hash = device.Hash{
			Planes: normals, Codes: alloc(device.I32, 1, blocks, 2*planes), Norm: alloc(device.F32, 1, 1, capacity), Center: alloc(device.F32, 1, 1, hashDim),
			Since: alloc(device.I32, 1, 1), Done: alloc(device.I32, 1, 1), Tables: tables, MinCollisions: collisions,
		}
		h.lists[i] = device.List{Index: alloc(device.I32, 1, 2, capacity), Count: alloc(device.I32, 1, 2), Weight: alloc(device.F32, 1, 2, capacity)}
	}
	h.buckets.Sorted = alloc(device.I32, 1, 1)
	h.buckets.Buckets = alloc(device.I32, 1, (capacity+device.HashRun-1)/device.HashRun, tables<<bits)
	h.buckets.Members = alloc(device.I32, 1, tables, (capacity+1)/2)
	return h
}

// fill sets the elements of an f32 tensor to normal random numbers.
func fill(x device.Tensor, rng *rand.Rand) {
	for i := range f32s(x) {
		f32s(x)[i] = float32(rng.NormFloat64())
	}
}

// same compares the lists of both behind n positions, and returns how many positions they have
// and for how many of two heads buckets were too full.
func (h *hashTest) same(n int) (found, full int) {
	h.t.Helper()
	i32s(h.kv.Len)[0] = int32(n)
	plan := device.Plan{Sink: 2, Recent: 3, Selected: device.None}
	for i, hash := range []device.Hash{h.codes, h.buckets} {
		device.Do(h.dev.ops, device.Summarize{Rule: device.KeyHashes, Hash: hash, KV: h.kv})
		device.Do(h.dev.ops, device.Select{Rule: device.Collisions, List: h.lists[i], Hash: hash, Q: h.q, KV: h.kv, Plan: plan})
	}
	if err := h.dev.Sync(); err != nil {
		h.t.Fatal(err)
	}
	a, b, limit := h.lists[0], h.lists[1], h.lists[0].Index.Dim(2)
	for head := range 2 {
		count := int(i32s(a.Count)[head])
		x, y := i32s(a.Index)[head*limit:][:count], i32s(b.Index)[head*limit:][:i32s(b.Count)[head]]
		if !slices.Equal(x, y) {
			h.t.Fatalf("%d positions, head %d: buckets have %d, codes have %d", n, head, len(y), count)
		}
		if !slices.Equal(f32s(a.Weight)[head*limit:][:count], f32s(b.Weight)[head*limit:][:count]) {
			h.t.Fatalf("%d positions, head %d: other weights", n, head)
		}
	}
	return int(i32s(a.Count)[0] + i32s(a.Count)[1]), int(h.dev.ops.tasks.collisions.tooFull.Load())
}

// TestBucketsFindWhatCodesDo compares following buckets with comparing all codes, while a
// sequence grows, is truncated and goes on with other keys, also over the end of a run.
func TestBucketsFindWhatCodesDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const run = device.HashRun
	lengths := []int{1, 2, 40, 64, 65, 700, 690, 691, 692, 640, 900, 3, 128, run - 1, run, run + 1, run + 1, run + 300, run + 299,
		run + 300, run, run - 70, run + 2, run - 6000, run - 5999, run + 5, run + 390, 200}
	for n := 200; len(lengths) < 600; {
		switch rng.IntN(20) {
		case 0:
			n += rng.IntN(400)
		case 1:
			n -= rng.IntN(min(n, 300))
		default:
			n++
		}
		lengths = append(lengths, n)
	}
	for _, collisions := range []int{1, 2} {
		h := newHashTest(t, run+400, 9, 8, collisions)
		found, n := 0, 0
		for _, to := range lengths {
			keys := f32s(h.kv.K)
			for i := min(to-1, n) * hashDim; i < to*hashDim; i++ { // the newest key always changes
				keys[i] = float32(rng.NormFloat64())
			}
			fill(h.q, rng)
			more, full := h.same(to)
			if full > 0 {
				t.Fatalf("%d positions: too many members in the buckets of %d queries", to, full)
			}
			found, n = found+more, to
		}
		if found < 100 {
			t.Errorf("%d collisions, want at least 100", found)
		}
	}
}

// TestFullBucketsAreGivenUp has nearly all keys in the buckets of the query.
func TestFullBucketsAreGivenUp(t *testing.T) {
	const n = 4000
	h := newHashTest(t, n, 24, 3, 2)
	rng := rand.New(rand.NewPCG(7, 8))
	for i, x := range f32s(h.kv.K) {
		if f32s(h.kv.K)[i] = float32(i%hashDim) - 7.5; i%(11*hashDim) < hashDim { // but for one of 11
			f32s(h.kv.K)[i] = x + float32(rng.NormFloat64())
		}
	}
	for i := range f32s(h.q) {
		f32s(h.q)[i] = float32(i%hashDim) - 7.5
	}
	if found, full := h.same(n); found < n || full != 2 {
		t.Errorf("%d collisions, want most of %d; buckets too full for %d queries, want 2", found, 2*n, full)
	}
}
