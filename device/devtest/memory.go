package devtest

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
)

// memory: what is allocated is zero, what is written is read, loads keep their
// contents, and a size that no machine has is an error.
func memory(t *testing.T, d device.Device) {
	if d.Info().Name == "" {
		t.Error("the device has no name")
	}
	b := newBed(t, d)
	for _, n := range []int{0, 1, 63, 64, 65, 1 << 20, 3 << 20} {
		x, err := d.Alloc(device.F32, n)
		if err != nil {
			t.Fatalf("Alloc of %d: %v", n, err)
		}
		if got := b.raw(x); !bytes.Equal(got, make([]byte, 4*n)) {
			t.Errorf("a new tensor of %d is not zero", n)
		}
		data := encode(b.normal(n))
		d.Write(x, data)
		if !bytes.Equal(b.raw(x), data) {
			t.Errorf("a tensor of %d does not read back", n)
		}
		if n > 1 {
			if got := b.raw(x.Rows(1, 2)); !bytes.Equal(got, data[4:8]) {
				t.Errorf("view of a tensor of %d reads %x, want %x", n, got, data[4:8])
			}
		}
	}
	data := encode(b.normal(6 * 32))
	x, err := d.Load(data, device.F32, 6, 32)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if !bytes.Equal(b.raw(x.Rows(2, 5)), data[2*128:5*128]) {
		t.Error("loaded rows do not read back")
	}
	if _, err := d.Load(data[:100], device.F32, 6, 32); err == nil {
		t.Error("Load of too few bytes gives no error")
	}
	for _, dims := range [][]int{{1 << 50}, {math.MaxInt}, {1 << 40, 1 << 40}, {-1}, {}} {
		if _, err := d.Alloc(device.F32, dims...); err == nil {
			t.Errorf("Alloc of %v gives no error", dims)
		}
	}
	if _, err := d.Alloc(device.F32, 1<<45); err == nil || !strings.Contains(err.Error(), "140737488355328") {
		t.Errorf("Alloc of 2^45 numbers: error %v, want the bytes needed", err)
	}
}

// scopes: what is allocated in a scope is given back, once, also after an error,
// and nothing else is.
func scopes(t *testing.T, d device.Device) {
	b := newBed(t, d)
	kept := b.i32([]int32{1, 2, 3}, 3)
	third := 1 << 20
	if free := d.Info().Free; free > 0 {
		third = int(min(free/3, 1<<33)) // bytes; 2^33 stays far from what others need
	}
	fails := errors.New("of the caller")
	for i := range 6 { // twice the memory that there is, where a third of it is taken
		var x device.Tensor
		free, err := d.Scope(func() (err error) {
			if x, err = d.Alloc(device.I32, third/4); err == nil && i%2 == 1 {
				err = fails
			}
			return err
		})
		if i%2 == 1 {
			if !errors.Is(err, fails) || free != nil {
				t.Fatalf("a scope that fails returns %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("scope %d: %v", i, err)
		}
		d.Write(x.Rows(0, 1), []byte{1, 2, 3, 4})
		if got := b.raw(x.Rows(0, 2)); !bytes.Equal(got, []byte{1, 2, 3, 4, 0, 0, 0, 0}) {
			t.Errorf("scope %d: new memory holds %x", i, got)
		}
		for range 2 {
			if err := free(); err != nil {
				t.Errorf("scope %d: free: %v", i, err)
			}
		}
	}
	if got := b.raw(kept); !bytes.Equal(got, []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}) {
		t.Errorf("memory outside the scopes holds %x", got)
	}
}

// misuse: shapes that do not fit panic with the words of device/check.go.
func misuse(t *testing.T, d device.Device) {
	b := newBed(t, d)
	f := func(dims ...int) device.Tensor { return b.out(dims...) }
	i := func(dims ...int) device.Tensor { return b.i32(make([]int32, size(dims)), dims...) }
	ops := d.Queue()
	kv := device.KV{K: f(2, 1, device.PageLen, 16), V: f(2, 1, device.PageLen, 16), Pages: i(1, 2), Len: i(1)}
	tests := []struct {
		want string
		call func()
	}{
		{"device: Embed: dst F32 [2 4], want F32 [2 8]", func() { device.Do(ops, device.Embed{Dst: f(2, 4), Table: f(3, 8), IDs: i(2)}) }},
		{"device: Gather: rows F32 [2], want I32", func() { device.Do(ops, device.Gather{Dst: f(2, 4), Src: f(3, 4), Rows: f(2)}) }},
		{"device: Copy: dst F32 [3]", func() { device.Do(ops, device.Copy{Dst: f(3), Src: f(4)}) }},
		{"device: Add: dst F32 [3 1], want F32 [3 2]", func() { device.Do(ops, device.Add{Dst: f(3, 1), X: f(3, 2)}) }},
		{"device: Add: dst F32 [3 2], want F32 [-1 3]", func() { device.Do(ops, device.Add{Dst: f(3, 2), X: f(3)}) }},
		{"device: RMSNorm: w F32 [4], want F32 [8]", func() { device.Do(ops, device.RMSNorm{Dst: f(2, 8), X: f(2, 8), W: f(4), Eps: 0}) }},
		{"device: Rope: pos I32 [3], want I32 [2]", func() {
			device.Do(ops, device.Rope{X: f(2, 1, 8), Pos: i(3), Rotation: device.Rotation{Freqs: f(4), Scale: 1}})
		}},
		{"device: Rope: 5 pairs", func() {
			device.Do(ops, device.Rope{X: f(2, 1, 8), Pos: i(2), Rotation: device.Rotation{Freqs: f(5), Scale: 1}})
		}},
		{"device: SwiGLU: up F32 [2 4], want F32 [2 8]", func() { device.Do(ops, device.SwiGLU{Dst: f(2, 8), Gate: f(2, 8), Up: f(2, 4)}) }},
		{"device: MatMul: dst F32 [2 5], want F32 [2 3]", func() { device.Do(ops, device.MatMul{Dst: f(2, 5), X: f(2, 8), W: f(3, 8)}) }},
		{"device: MatMul: x F32 [2 7], want F32 [-1 8]", func() { device.Do(ops, device.MatMul{Dst: f(2, 3), X: f(2, 7), W: f(3, 8)}) }},
		{"device: SampleTokens: pos I32 [1], want I32 [2]", func() {
			device.Do(ops, device.SampleTokens{Next: i(2), Logits: f(2, 9), History: i(2, 1), Pos: i(1), Params: make([]sampling.Params, 2)})
		}},
		{"device: SampleTokens: 1 sampling parameters, want 2", func() {
			device.Do(ops, device.SampleTokens{Next: i(2), Logits: f(2, 9), History: i(2, 1), Pos: i(2), Params: make([]sampling.Params, 1)})
		}},
		{"device: Append: k F32 [2 2 16]", func() { device.Do(ops, device.Append{KV: kv, K: f(2, 2, 16), V: f(2, 2, 16)}) }},
		{"device: Attend: q F32 [2 2 8]", func() { device.Do(ops, device.Attend{Dst: f(2, 2, 8), Q: f(2, 2, 8), KV: kv, Plan: device.Plan{}}) }},
		{"device: Attend: list absent", func() {
			device.Do(ops, device.Attend{Dst: f(2, 2, 16), Q: f(2, 2, 16), KV: kv, Plan: device.Plan{Selected: device.Tokens}})
		}},
		{"device: Write: ", func() { d.Write(f(2), make([]byte, 7)) }},
		{"device: Read: ", func() { _ = d.Read(make([]byte, 7), f(2)) }},
	}
	for _, tt := range tests {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, tt.want) {
					t.Errorf("panic %q, want %q", s, tt.want)
				}
			}()
			tt.call()
		}()
	}
}

// failures: data that breaks the contract is reported by Sync, once, and does
// not stop the device.
func failures(t *testing.T, d device.Device) {
	b := newBed(t, d)
	i := func(v ...int32) device.Tensor { return b.i32(v, len(v)) }
	cache := func(page, length int32) device.KV {
		return device.KV{
			K: b.out(2, 1, device.PageLen, 16), V: b.out(2, 1, device.PageLen, 16),
			Pages: b.i32([]int32{0, page}, 1, 2), Len: i(length),
		}
	}
	row := b.out(1, 1, 16)
	top := func(rule device.SelectRule) func(ops device.Queue) {
		return func(ops device.Queue) {
			list := device.List{Index: b.i32([]int32{0, 0}, 1, 1, 2), Count: b.i32([]int32{0}, 1, 1)}
			device.Do(ops, device.Select{Rule: rule, List: list, Scores: b.out(1, 1, 65), KV: cache(1, 66), K: device.Amount{Count: 2}, Mass: .1})
		}
	}
	tests := []struct {
		name string
		call func(ops device.Queue)
	}{
		{"Embed of id 3 of 3", func(ops device.Queue) {
			device.Do(ops, device.Embed{Dst: b.out(2, 4), Table: b.out(3, 4), IDs: i(0, 3)})
		}},
		{"Embed of id -1", func(ops device.Queue) { device.Do(ops, device.Embed{Dst: b.out(1, 4), Table: b.out(3, 4), IDs: i(-1)}) }},
		{"Gather of row 3 of 3", func(ops device.Queue) { device.Do(ops, device.Gather{Dst: b.out(1, 4), Src: b.out(3, 4), Rows: i(3)}) }},
		{"Attend to page 2 of 2", func(ops device.Queue) {
			device.Do(ops, device.Attend{Dst: b.out(1, 1, 16), Q: row, KV: cache(2, 65), Plan: device.Plan{}})
		}},
		{"Attend to page -1", func(ops device.Queue) {
			device.Do(ops, device.Attend{Dst: b.out(1, 1, 16), Q: row, KV: cache(-1, 65), Plan: device.Plan{}})
		}},
		{"Attend beyond the page table", func(ops device.Queue) {
			device.Do(ops, device.Attend{Dst: b.out(1, 1, 16), Q: row, KV: cache(1, 129), Plan: device.Plan{}})
		}},
		{"Append to page 2 of 2", func(ops device.Queue) { device.Do(ops, device.Append{KV: cache(2, 65), K: row, V: row}) }},
		{"Append beyond the page table", func(ops device.Queue) { device.Do(ops, device.Append{KV: cache(1, 129), K: row, V: row}) }},
		{"Append of more rows than the length", func(ops device.Queue) {
			device.Do(ops, device.Append{KV: cache(1, 1), K: b.out(2, 1, 16), V: b.out(2, 1, 16)})
		}},
		{"TopK of rows of scores that end before the position", top(device.TopK)},
		{"TopP of rows of scores that end before the position", top(device.TopP)},
		{"GroupMax of rows of scores that end before the position", func(ops device.Queue) {
			device.Do(ops, device.Score{Rule: device.GroupMax, Dst: b.out(1, 1, 65), Q: b.out(1, 2, 65), KV: cache(1, 66)})
		}},
	}
	for _, tt := range tests {
		tt.call(d.Queue())
		err := d.Sync()
		if err == nil {
			t.Errorf("%s: Sync reports nothing", tt.name)
		} else if narrow := "position 65 in scores of 65"; strings.Contains(tt.name, "rows of scores") && !strings.Contains(err.Error(), narrow) {
			t.Errorf("%s: Sync reports %v, want %s", tt.name, err, narrow)
		}
		if err := d.Sync(); err != nil {
			t.Errorf("%s: reported twice: %v", tt.name, err)
		}
	}
}
