//go:build cuda || cudaemu

package cuda

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// TestRoofline measures memory and a GEMM, by cuBLASLt where there is one.
func TestRoofline(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	p := d.Roofline()
	if p.Read <= 0 || p.Float <= 0 {
		t.Errorf("memory of %v bytes and a product of %v operations per second", p.Read, p.Float)
	}
	if got := strings.Contains(p.How, "by cuBLASLt "); got != d.drv.hasLibrary() {
		t.Errorf("measured %q, and that there is a library is %v", p.How, d.drv.hasLibrary())
	}
	if by := "by " + d.products(); !strings.HasSuffix(p.How, by) {
		t.Errorf("measured %q, and products are %q", p.How, by)
	}
	if err := d.Sync(); err != nil {
		t.Error(err)
	}
}

// TestReadBandwidth checks that the kernel of the roofline reads every word: it says so of the
// one that is not zero, wherever that is.
func TestReadBandwidth(t *testing.T) {
	const unlikely = 0x9e3779b9 // UNLIKELY_SUM
	d := openTest(t).(*dev)
	defer d.Close()
	stride := readBlocks * d.drv.multiprocessors() * readThreads * 4 // words that the grid reads at once
	for _, words := range []int{4, stride - 4, 4*stride + 8, 5 * stride} {
		src, err := d.Alloc(device.I32, words)
		if err != nil {
			t.Fatal(err)
		}
		dst, err := d.Alloc(device.I32, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, words / 3, words - 1} {
			b := make([]byte, 4*words)
			binary.LittleEndian.PutUint32(b[4*at:], unlikely)
			d.Write(src, b)
			d.Write(dst, make([]byte, 4))
			d.readOnce(dst, src)
			got := make([]byte, 4)
			if err := d.Read(got, dst); err != nil || binary.LittleEndian.Uint32(got) != unlikely {
				t.Errorf("word %d of %d is not read: %x, %v", at, words, got, err)
			}
		}
	}
}
