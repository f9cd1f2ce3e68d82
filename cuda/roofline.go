//go:build cuda || cudaemu

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/gollm/gollm/device"
)

const (
	peakTime   = 100 * time.Millisecond // of each measurement, at least
	peakShare  = 8                      // of the free memory, what a tensor of a measurement may take
	peakRandom = 1 << 16                // random elements, which repeat: zeros are faster to multiply
)

// ownProducts is what multiplies many rows where there is no library.
const ownProducts = "our own kernel (no cuBLASLt)"

// Peaks measures a copy on the device, which reads and writes, and a large product
// of bfloat16 with sums in f32: that of cuBLASLt where it is found, our own
// otherwise. What does not fit beside what is in memory is unknown.
func (d *dev) Roofline() device.Roofline {
	var p device.Roofline
	var product string
	free, err := d.Scope(func() error {
		p.Read = d.copyPeak()
		p.Float, product = d.productPeak()
		return nil
	})
	if err == nil {
		d.keep(free())
	}
	p.Int8 = p.Float
	p.How = "a copy on the device, read and written; " + product
	return p
}

// products is what multiplies many rows: cuBLASLt, where this machine has it.
func (d *dev) products() string {
	if d.drv.hasLibrary() {
		return "cuBLASLt " + d.drv.libraryVersion()
	}
	return ownProducts
}

// copyPeak is the bytes per second of a large copy, both sides counted.
func (d *dev) copyPeak() float64 {
	size := int(min(peakCopy, d.drv.available()/peakShare)) &^ 15
	a, err := d.Alloc(device.BF16, size/2)
	if err != nil {
		return 0
	}
	b, err := d.Alloc(device.BF16, size/2)
	if err != nil {
		return 0
	}
	d.Write(a, brains(size/2))
	each, err := d.repeated(func() error { return d.drv.copy(d.address(b), d.address(a), size) })
	if err != nil {
		return 0
	}
	return 2 * float64(size) / each
}

// productPeak is the operations per second of a large product, and what did it.
func (d *dev) productPeak() (rate float64, by string) {
	n := peakProduct
	for n > 64 && uint64(4*n*n) > d.drv.available()/peakShare {
		n /= 2
	}
	w, err := d.Alloc(device.BF16, n, n)
	if err != nil {
		return 0, "no memory for a product"
	}
	d.Write(w, brains(n*n))
	ops := 2 * float64(n) * float64(n) * float64(n)
	size := fmt.Sprintf("a product of %d³ in bfloat16 by ", n)
	each, err := d.libraryProduct(w)
	if err == nil {
		return ops / each, size + d.products()
	}
	x, err := d.Alloc(device.F32, n, n)
	if err != nil {
		return 0, "no memory for a product"
	}
	dst, err := d.Alloc(device.F32, n, n)
	if err != nil {
		return 0, "no memory for a product"
	}
	d.Write(x, floats(n*n))
	if each, err = d.repeated(func() error { device.Do(d.ops, device.MatMul{Dst: dst, X: x, W: w}); return nil }); err != nil {
		return 0, "a product failed"
	}
	return ops / each, size + ownProducts
}

// libraryProduct times w·wᵀ of bfloat16 by cuBLASLt.
func (d *dev) libraryProduct(w device.Tensor) (seconds float64, err error) {
	if !d.drv.hasLibrary() {
		return 0, errors.New("no cuBLASLt is found")
	}
	n := w.Dim(0)
	dst, err := d.Alloc(device.BF16, n, n)
	if err != nil {
		return 0, err
	}
	return d.repeated(func() error {
		return d.drv.multiplyBrains(d.address(dst), d.address(w), d.address(w), n, d.halves.at+uintptr(halvesSize))
	})
}

// repeated is the seconds that a call takes, of many in a row after a warm-up.
func (d *dev) repeated(call func() error) (float64, error) {
	several := func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if err := call(); err != nil {
				return 0, err
			}
		}
		d.ops.Flush()
		err := d.drv.sync()
		return time.Since(start), err
	}
	if _, err := several(1); err != nil {
		return 0, err
	}
	for n := 1; ; n *= 2 {
		took, err := several(n)
		if err != nil {
			return 0, err
		}
		if took >= peakTime {
			return took.Seconds() / float64(n), nil
		}
	}
}

// brains is n random numbers of bfloat16, normally distributed.
func brains(n int) []byte {
	rng := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, 2*n)
	for i := range min(n, peakRandom) {
		binary.LittleEndian.PutUint16(b[2*i:], uint16(math.Float32bits(float32(rng.NormFloat64()))>>16))
	}
	return fillUp(b, 2*peakRandom)
}

// floats is n random numbers, normally distributed.
func floats(n int) []byte {
	rng := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, 4*n)
	for i := range min(n, peakRandom) {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(rng.NormFloat64())))
	}
	return fillUp(b, 4*peakRandom)
}

// fillUp repeats the first n bytes.
func fillUp(b []byte, n int) []byte {
	for at := n; at < len(b); at *= 2 {
		copy(b[at:], b[:at])
	}
	return b
}
