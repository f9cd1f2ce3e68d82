package cpu

import (
	"bytes"
	"math"
	"testing"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// TestThreadsDoNotMatter compares the bits of attention with several numbers of threads, over
// a past of several splits.
func TestThreadsDoNotMatter(t *testing.T) {
	const heads, kvHeads, dim, length = 8, 2, 64, 3000
	for _, rows := range []int{1, 130} {
		var want []byte
		for _, threads := range []int{1, 2, 3} {
			d := open(threads, vec.Best())
			alloc := func(dt device.DType, dims ...int) device.Tensor {
				x, err := d.Alloc(dt, dims...)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			const pages = (length + device.PageLen - 1) / device.PageLen
			kv := device.KV{
				K: alloc(device.F32, pages, kvHeads, device.PageLen, dim), V: alloc(device.F32, pages, kvHeads, device.PageLen, dim),
				Pages: alloc(device.I32, 1, pages), Len: alloc(device.I32, 1),
			}
			q, dst := alloc(device.F32, rows, heads, dim), alloc(device.F32, rows, heads, dim)
			for i := range i32s(kv.Pages) {
				i32s(kv.Pages)[i] = int32(pages - 1 - i)
			}
			i32s(kv.Len)[0] = length
			for i, x := range []device.Tensor{kv.K, kv.V, q} {
				for j := range f32s(x) {
					f32s(x)[j] = float32(math.Sin(float64(i + 7*j)))
				}
			}
			device.Do(d.Queue(), device.Attend{Dst: dst, Q: q, KV: kv, Plan: device.Plan{}})
			got := bytes.Clone(bytesOf(dst))
			if want == nil {
				want = got
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%d rows: %d threads give other bits than 1", rows, threads)
			}
			if err := d.Sync(); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
