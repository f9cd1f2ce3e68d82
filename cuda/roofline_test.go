//go:build cuda || cudaemu

package cuda

import (
	"strings"
	"testing"
)

// TestRoofline measures a copy and a GEMM, by cuBLASLt where there is one.
func TestRoofline(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	p := d.Roofline()
	if p.Read <= 0 || p.Float <= 0 {
		t.Errorf("a copy of %v bytes and a product of %v operations per second", p.Read, p.Float)
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
