//go:build cuda && !cudaemu

package cuda

import (
	"fmt"
	"testing"

	"github.com/gollm/gollm/device"
)

// BenchmarkCollisions is the index of magicpig and the positions that collide, in a layer of a
// decode step of an 8B model, with buckets and without. Queries differ from call to call, so that L2
// does not hold their buckets. Bytes are those of all codes.
func BenchmarkCollisions(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, n := range []int{32 << 10, 128 << 10} {
		for _, buckets := range []bool{true, false} {
			free, err := d.Scope(func() error {
				s := newCollisionBed(b, d, n, buckets)
				s.summarize()
				bytes := float64(selectKVHeads * n * lshTables * lshBits / 8)
				for _, c := range s.calls() {
					b.Run(fmt.Sprintf("%s/buckets=%v/len=%d", c.name, buckets, n), func(b *testing.B) {
						reportRate(b, bytes, measure(b, d, c.call)/collisionQueries, copied)
					})
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := free(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

const collisionQueries = 32

// collisionBed is a layer of a sequence with its index.
type collisionBed struct {
	d       *dev
	queries device.Tensor // [collisionQueries, heads, dim]
	hash    device.Hash
	list    device.List
	kv      device.KV
}

func newCollisionBed(b *testing.B, d *dev, n int, buckets bool) *collisionBed {
	i := func(dims ...int) device.Tensor { return benchAlloc(b, d, device.I32, dims...) }
	f := func(dims ...int) device.Tensor { return benchAlloc(b, d, device.F32, dims...) }
	planes, pages := lshTables*lshBits, n/device.PageLen
	keys := filled(b, d, device.F16, pages, selectKVHeads, device.PageLen, selectDim)
	s := &collisionBed{d: d, queries: filled(b, d, device.F32, collisionQueries, selectHeads, selectDim),
		kv:   device.KV{K: keys, V: keys, Pages: i(1, pages), Len: i(1)},
		list: device.List{Index: i(1, selectHeads, n), Count: i(1, selectHeads), Weight: f(1, selectHeads, n)},
		hash: device.Hash{Planes: filled(b, d, device.F32, planes, selectDim), Codes: i(1, selectKVHeads*pages, 2*planes),
			Norm: f(1, selectKVHeads, n), Center: f(1, selectKVHeads, selectDim), Since: i(1, 1), Done: i(1, 1),
			Tables: lshTables, MinCollisions: 2, Mean: true, Sink: 4, Recent: 64}}
	if buckets {
		runs := (n + device.HashRun - 1) / device.HashRun
		s.hash.Sorted, s.hash.Buckets, s.hash.Members = i(1, 1), i(1, selectKVHeads*runs, lshTables<<lshBits), i(1, selectKVHeads*lshTables, n/2)
	}
	table := make([]int, pages)
	for i := range table {
		table[i] = (i*97 + 31) % pages
	}
	d.Write(s.kv.Pages, words(table...))
	d.Write(s.kv.Len, words(n))
	d.Write(s.hash.Since, words(n-100))
	d.Write(s.hash.Done, words(0))
	return s
}

func (s *collisionBed) summarize() {
	device.Do(s.d.ops, device.Summarize{Rule: device.KeyHashes, Hash: s.hash, KV: s.kv})
}

// calls are for each of the queries.
func (s *collisionBed) calls() []selectCall {
	plan := device.Plan{Sink: 4, Recent: 64, Selected: device.None}
	each := func(call func(q device.Tensor)) func() {
		return func() {
			for i := range collisionQueries {
				call(s.queries.Rows(i, i+1))
			}
		}
	}
	return []selectCall{
		{name: "key-hashes", call: each(func(device.Tensor) { s.summarize() })},
		{name: "collisions", call: each(func(q device.Tensor) {
			device.Do(s.d.ops, device.Select{Rule: device.Collisions, List: s.list, Hash: s.hash, Q: q, KV: s.kv, Plan: plan})
		})},
	}
}
