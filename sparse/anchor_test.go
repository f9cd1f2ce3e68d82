package sparse_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// anchorExample is example A-1: one dimension, blocks of 2, groups of 2 blocks.
func anchorExample() engine.QKV {
	return engine.QKV{
		Q: []float32{1, 2, 1, 1, 2, 1, 1, 3, 2, 2, 1, 2},
		K: []float32{3, 0, 1, 2, 0, 1, 3, 0, 2, 1, 2, 1},
		V: []float32{1, 0, 2, 1, 3, 0, 1, 2, 0, 1, 2, 3},
	}
}

// runAnchor prefills the example in chunks and returns the outputs of all rows
// and the positions that each row reads.
func runAnchor(t *testing.T, spec string, chunk int) (out []float32, read map[int][]int32) {
	t.Helper()
	s, err := sparse.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := device.Open(devtest.Device, device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	r, err := engine.NewReplay(dev, s, engine.ReplayConfig{Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 1, MaxLen: 12})
	if err != nil {
		t.Fatal(err)
	}
	read = map[int][]int32{}
	r.Observe = func(s engine.Selection) {
		for row, p := range s.Pos {
			read[p], _ = s.Keys(row, 0)
		}
	}
	seq, err := r.Open([]engine.QKV{anchorExample()})
	if err != nil {
		t.Fatal(err)
	}
	if err := seq.Prefill(12, chunk); err != nil {
		t.Fatal(err)
	}
	return seq.Output(0), read
}

// TestAnchorExample is A-1: the outputs of the last group for four thresholds.
func TestAnchorExample(t *testing.T) {
	tests := []struct {
		spec string
		want []float32 // rows 8 to 11
	}{
		{"anchor(block=2,step=2,theta=-1000)", []float32{0.936768, 0.937304, 1.000000, 1.015842}},
		{"anchor(block=2,step=2,theta=2)", []float32{0.940528, 0.941003, 1.000000, 1.014966}},
		{"anchor(block=2,step=2,theta=1.5)", []float32{0.940528, 0.941003, 1.000000, 1.014966}},
		{"anchor(block=2,step=2,theta=Inf)", []float32{0.943675, 0.944117, 1.027213, 1.016724}},
		{"dense", []float32{0.943675, 0.944117, 1.027213, 1.016724}},
	}
	for _, tt := range tests {
		for _, chunk := range []int{4, 8, 12} {
			t.Run(fmt.Sprintf("%s/chunk=%d", tt.spec, chunk), func(t *testing.T) {
				got, _ := runAnchor(t, tt.spec, chunk)
				for i, want := range tt.want {
					if math.Abs(float64(got[8+i]-want)) > 1e-6 {
						t.Errorf("row %d: %f, want %f", 8+i, got[8+i], want)
					}
				}
			})
		}
	}
}

// TestAnchorStripes is the selection of A-1: the last group's window is block 0,
// the block before the group and the group up to the row, and the candidates
// between are positions 2 to 5.
func TestAnchorStripes(t *testing.T) {
	for spec, want := range map[string][]int32{
		"anchor(block=2,step=2,theta=1.4)":             {0, 1, 6, 7, 8, 9},
		"anchor(block=2,step=2,theta=1.5)":             {0, 1, 3, 6, 7, 8, 9},
		"anchor(block=2,step=2,theta=2)":               {0, 1, 3, 6, 7, 8, 9},
		"anchor(block=2,step=2,theta=3)":               {0, 1, 2, 3, 5, 6, 7, 8, 9},
		"anchor(block=2,step=2,theta=2,window=noprev)": {0, 1, 3, 6, 8, 9},
	} {
		_, read := runAnchor(t, spec, 4)
		if !slices.Equal(read[9], want) {
			t.Errorf("%s: row 9 reads %v, want %v", spec, read[9], want)
		}
	}
	_, read := runAnchor(t, "anchor(block=2,step=2,theta=2,window=noprev)", 4)
	if want := []int32{0, 1, 3, 4, 5}; !slices.Equal(read[5], want) {
		t.Errorf("noprev: row 5 of group 1 reads %v, want %v", read[5], want)
	}
}

// TestAnchorRanges is A-2: windows and candidates at full size, read off the
// plans for a threshold that selects nothing and one that selects everything.
func TestAnchorRanges(t *testing.T) {
	for _, tt := range []struct {
		spec      string
		row, back int // the window's second part starts at back
	}{
		{"anchor(theta=-1000)", 4095, 1920},
		{"anchor(theta=-1000)", 6143, 3968},
		{"anchor(theta=-1000,window=noprev)", 6143, 4096},
	} {
		want := make([]int32, 0, 128+2304)
		for j := range int32(128) {
			want = append(want, j)
		}
		for j := int32(tt.back); j <= int32(tt.row); j++ {
			want = append(want, j)
		}
		if got := lastRow(t, tt.spec, tt.row+1); !slices.Equal(got, want) {
			t.Errorf("%s: row %d reads %d positions from %v, want %d", tt.spec, tt.row, len(got), got[:3], len(want))
		}
	}
	if got := lastRow(t, "anchor(theta=1e30)", 4096); len(got) != 4096 {
		t.Errorf("a threshold without bound: the last row reads %d of 4096", len(got))
	}
}

// lastRow is what the last of n rows reads, queries and keys all alike.
func lastRow(t *testing.T, spec string, n int) (keys []int32) {
	t.Helper()
	s, err := sparse.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := device.Open(devtest.Device, device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	r, err := engine.NewReplay(dev, s, engine.ReplayConfig{Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 16, MaxLen: n})
	if err != nil {
		t.Fatal(err)
	}
	r.Observe = func(s engine.Selection) {
		if last := len(s.Pos) - 1; s.Pos[last] == n-1 {
			keys, _ = s.Keys(last, 0)
		}
	}
	ones := make([]float32, 16*n)
	for i := range ones {
		ones[i] = 1
	}
	seq, err := r.Open([]engine.QKV{{Q: ones, K: ones, V: ones}})
	if err != nil {
		t.Fatal(err)
	}
	if err := seq.Prefill(n, engine.ChunkLen); err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestAnchorGroupsBeforeTheLastAreDense: in A-1 only group 2 has candidates.
func TestAnchorGroupsBeforeTheLastAreDense(t *testing.T) {
	got, _ := runAnchor(t, "anchor(block=2,step=2,theta=-1000)", 12)
	want, _ := runAnchor(t, "dense", 12)
	if !slices.Equal(got[:8], want[:8]) {
		t.Errorf("rows 0 to 7: %v, want %v", got[:8], want[:8])
	}
}
