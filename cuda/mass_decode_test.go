//go:build cudaemu

package cuda

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// massBed is slots that share their pages, with lists of a third of the positions.
type massBed struct {
	d     *dev
	kv    device.KV
	call  device.Summarize
	first []byte // sums before the call
}

const massHeads, massKVHeads, massDim, massLen = 6, 2, 64, 210

func newMassBed(t *testing.T, d *dev, without int, lens ...int) *massBed {
	rng := rand.New(rand.NewPCG(5, 11))
	b := &massBed{d: d, kv: filledCache(t, d, rng, massLen, massKVHeads, massDim)}
	slots, table := len(lens), []byte{}
	pages := make([]byte, b.kv.Pages.Size())
	if err := d.Read(pages, b.kv.Pages); err != nil {
		t.Fatal(err)
	}
	for range slots {
		table = append(table, pages...)
	}
	b.kv.Pages, b.kv.Len = alloc(t, d, device.I32, slots, b.kv.Pages.Dim(1)), alloc(t, d, device.I32, slots)
	d.Write(b.kv.Pages, table)
	d.Write(b.kv.Len, words(lens...))
	l := device.List{Index: alloc(t, d, device.I32, slots, massKVHeads, massLen), Count: alloc(t, d, device.I32, slots, massKVHeads)}
	var index, count []int
	for _, n := range lens {
		for head := range massKVHeads {
			at := len(index)
			for j := head; j < n-1; j += 3 {
				if j != without {
					index = append(index, j)
				}
			}
			count = append(count, len(index)-at)
			index = append(index, make([]int, at+massLen-len(index))...)
		}
	}
	d.Write(l.Index, words(index...))
	d.Write(l.Count, words(count...))
	x, sum := alloc(t, d, device.F32, slots, massHeads, massDim), alloc(t, d, device.F32, slots, massKVHeads, massLen)
	d.Write(x, normal(rng, x.Len()))
	for range sum.Len() {
		b.first = binary.LittleEndian.AppendUint32(b.first, math.Float32bits(rng.Float32()))
	}
	b.call = device.Summarize{Rule: device.AttentionMass, Dst: sum, X: x, KV: b.kv, Plan: device.Plan{Recent: 1, Selected: device.Tokens, List: l}}
	return b
}

// run is the sums after a call; attention too, if it is made.
func (b *massBed) run(t *testing.T, attends bool) (sum, dst []float32) {
	t.Helper()
	var to device.Tensor
	if attends {
		to = alloc(t, b.d, device.F32, b.call.X.Dim(0), massHeads, massDim)
	}
	b.d.Write(b.call.Dst, b.first)
	if !b.d.ops.decodeMass(&b.call, to) {
		t.Fatal("the kernels of decode attention do not take it")
	}
	if sum = read(t, b.d, b.call.Dst); attends {
		dst = read(t, b.d, to)
	}
	return sum, dst
}

// TestMassInPieces: where the workspace has room for one slot, the slots' results are the same.
func TestMassInPieces(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	b := newMassBed(t, d, -1, massLen, 70, 0, 133)
	size := workspaceSize
	defer func() { workspaceSize = size }()
	for _, attends := range []bool{false, true} {
		workspaceSize = size
		sum, dst := b.run(t, attends)
		splits, _ := d.ops.decodeSplits(&device.Attend{Q: b.call.X, KV: b.kv, Plan: b.call.Plan})
		workspaceSize = massSize(&b.call, splits, attends)
		pieceSum, pieceDst := b.run(t, attends)
		if !slices.Equal(sum, pieceSum) || !slices.Equal(dst, pieceDst) {
			t.Errorf("attends=%v: slots one by one give other sums or attention", attends)
		}
	}
}

// TestMassAttends: attention beside masses has the bits of attention, on short pasts, where clusters
// merge, and on long ones.
func TestMassAttends(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	for _, short := range []bool{false, true} {
		b := newMassBed(t, d, -1, massLen, 70, 0, 133)
		b.call.KV.Short = short
		want := alloc(t, d, device.F32, b.call.X.Dim(0), massHeads, massDim)
		device.Do(d.ops, device.Attend{Dst: want, Q: b.call.X, KV: b.call.KV, Plan: b.call.Plan})
		alone, _ := b.run(t, false)
		sum, dst := b.run(t, true)
		for row := range 4 {
			if row == 2 {
				continue // idle
			}
			n := massHeads * massDim
			if !slices.Equal(dst[row*n:(row+1)*n], read(t, d, want)[row*n:(row+1)*n]) {
				t.Errorf("short=%v: row %d is not that of attention alone", short, row)
			}
		}
		if !short && !slices.Equal(sum, alone) {
			t.Error("the masses beside attention are not those alone")
		}
	}
}

// TestMassOfNaN: a score that is not a number counts as masked, though attention has it.
func TestMassOfNaN(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	const broken = 33
	want, _ := newMassBed(t, d, broken, massLen).run(t, false)
	b := newMassBed(t, d, -1, massLen)
	table := make([]byte, b.kv.Pages.Size())
	if err := d.Read(table, b.kv.Pages); err != nil {
		t.Fatal(err)
	}
	keys := b.kv.K.At(int(binary.LittleEndian.Uint32(table))) // [kv heads, PageLen, dim]
	for head := range massKVHeads {
		d.Write(keys.At(head).Rows(broken, broken+1), bytes.Repeat([]byte{0, 0x7e}, massDim))
	}
	for _, attends := range []bool{false, true} {
		got, _ := b.run(t, attends)
		for i, x := range want {
			if diff := got[i] - x; !(math.Abs(float64(diff)) <= 1e-6) {
				t.Fatalf("attends=%v: sum %d is %v, want %v", attends, i, got[i], x)
			}
		}
	}
}
