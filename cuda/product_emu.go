//go:build cudaemu

package cuda

import "errors"

// What Peaks measures with: bytes of a copy, and rows of a product.
const (
	peakCopy     = 16 << 20
	peakProduct  = 128
	librarySpace = 16
)

// libraryProduct is a product by cuBLASLt, which the emulator does not have.
type libraryProduct struct{}

func (d *driver) openProduct(int) (*libraryProduct, error) {
	return nil, errors.New("the emulator has no libraries")
}

func (*libraryProduct) name() string                 { return "" }
func (*libraryProduct) run(_, _, _, _ uintptr) error { return nil }
func (*libraryProduct) close()                       {}
