//go:build cuda || cudaemu

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// TestReusedGroupsAreNotScored: ReuseSelection writes no score of a head group that reuses an entry,
// whatever its keys are, and those of the group that selects.
func TestReusedGroupsAreNotScored(t *testing.T) {
	for _, dim := range []int{32, 64, 128} { // the first has no kernels of its own
		for _, bits := range []int{0, 4, 8} {
			for _, groups := range []int{8, 2} {
				for _, selects := range []bool{false, true} {
					t.Run(fmt.Sprintf("dim=%d/bits=%d/groups=%d/selects=%v", dim, bits, groups, selects), func(t *testing.T) {
						testReusedGroups(t, dim, bits, groups, selects)
					})
				}
			}
		}
	}
}

// testReusedGroups has all groups reuse an entry, or all but the last.
func testReusedGroups(t *testing.T, dim, bits, groups int, selects bool) {
	const heads, kvHeads, n, block = 8, 2, 299, 8
	d := openTest(t).(*dev)
	defer d.Close()
	rng := rand.New(rand.NewPCG(7, 8))
	i := func(dims ...int) device.Tensor { return alloc(t, d, device.I32, dims...) }
	kv := filledCache(t, d, rng, n, kvHeads, dim)
	r := device.ReuseSelection{
		List: device.List{Index: i(1, groups, n), Count: i(1, groups)},
		Cache: device.SelectionCache{
			Query: alloc(t, d, device.F32, 1, heads*block, dim), Entry: i(1, groups*block, 3), Index: i(1, groups*block, 40),
			Since: i(1, 1), Found: i(1, groups), Counters: i(1, groups, 4), Block: block, MinCosine: 0.9, K: device.Amount{Count: 40},
		},
		Scores: alloc(t, d, device.F32, 1, heads, n), Q: alloc(t, d, device.F32, 1, heads, dim), KV: kv,
		Plan: device.Plan{Selected: device.Tokens, Sink: 3, Recent: 9}, Neighbors: device.Neighbors{Best: device.Amount{Count: 9}, Each: 1},
	}
	r.Compared, r.Plan.List = r.Q, r.List
	if bits > 0 {
		r.Keys = i(kv.K.Dim(0), kvHeads, device.MirrorWords(dim, bits), device.PageLen)
		device.Do(d.ops, device.Summarize{Rule: device.KeyMirror, Dst: r.Keys, KV: kv, Rows: n})
	}
	for _, x := range []device.Tensor{r.Cache.Entry, r.Cache.Since, r.Cache.Counters} {
		d.Write(x, make([]byte, x.Size()))
	}
	step := func(length int, q, scores []byte) []byte {
		d.Write(kv.Len, binary.LittleEndian.AppendUint32(nil, uint32(length)))
		d.Write(r.Q, q)
		d.Write(r.Scores, scores)
		device.Do(d.ops, r)
		got := make([]byte, len(scores))
		if err := d.Read(got, r.Scores); err != nil {
			t.Fatal(err)
		}
		return got
	}
	q := normal(rng, heads*dim)
	before := bytes.Repeat(binary.LittleEndian.AppendUint32(nil, math.Float32bits(12345)), heads*n)
	step(n-1, q, before)
	own := len(q) / groups // bytes of a group's queries
	for at := len(q) - own + 3; selects && at < len(q); at += 4 {
		q[at] ^= 0x80
	}
	after := step(n, q, before)
	row := len(before) / groups // bytes of a group's scores
	for g := range groups {
		kept := bytes.Equal(before[g*row:(g+1)*row], after[g*row:(g+1)*row])
		if want := !selects || g < groups-1; kept != want {
			t.Errorf("scores of head group %d of %d were kept: %v, want %v", g, groups, kept, want)
		}
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
}
