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
	rooflineTime   = 100 * time.Millisecond // the least of each measurement
	rooflineMemory = 8                      // a tensor of a measurement takes up to one in so many of the free bytes
	rooflineRandom = 1 << 16                // random elements, which repeat: zeros draw less power, and multiply faster
)

// ownProducts describes the GEMM of a machine without cuBLASLt.
const ownProducts = "our own kernel (no cuBLASLt)"

// Roofline measures memory, by a kernel that only reads and by a device-to-device copy (reads and
// writes counted), of which the faster is the limit, and a large GEMM of bfloat16 with f32
// accumulation: cuBLASLt's where it is found, our own otherwise. A rate is unknown where the
// free memory is too little to measure it.
func (d *dev) Roofline() device.Roofline {
	var p device.Roofline
	var memory, product string
	free, err := d.Scope(func() error {
		p.Read, memory = d.memoryRate()
		p.Float, product = d.gemmRate()
		return nil
	})
	if err == nil {
		d.keep(free())
	}
	p.Int8 = p.Float
	p.How = memory + "; " + product
	return p
}

// products describes the GEMM: cuBLASLt, where this machine has it.
func (d *dev) products() string {
	if d.drv.hasLibrary() {
		return "cuBLASLt " + d.drv.libraryVersion()
	}
	return ownProducts
}

// memoryRate is the bytes per second of a kernel that only reads, or of a copy, reads and writes
// counted: of the faster, which is named.
func (d *dev) memoryRate() (rate float64, by string) {
	size := int(min(rooflineCopy, d.drv.available()/rooflineMemory)) &^ 15
	src, err := d.Alloc(device.BF16, size/2)
	if err != nil {
		return 0, "no memory for a copy"
	}
	dst, err := d.Alloc(device.BF16, size/2)
	if err != nil {
		return 0, "no memory for a copy"
	}
	d.Write(src, normalBF16(size/2))
	read := d.rateOf(size, func() error { d.readOnce(dst, src); return nil })
	copied := d.rateOf(2*size, func() error { return d.drv.copy(d.address(dst), d.address(src), size) })
	if read > copied {
		return read, "a kernel that only reads"
	}
	return copied, "a copy on the device, read and written"
}

// rateOf is the bytes per second of a call that moves so many; 0, unknown, if it fails.
func (d *dev) rateOf(bytes int, call func() error) float64 {
	each, err := d.timeOf(call)
	if err != nil {
		return 0
	}
	return float64(bytes) / each
}

// readThreads and readBlocks are threads of a block of the kernel read_bandwidth, and its blocks
// per multiprocessor, which hold 2048 threads.
const readThreads, readBlocks = 512, 4

// readOnce reads src, in whole 16-byte words, and leaves dst for the compiler's sake.
func (d *dev) readOnce(dst, src device.Tensor) {
	d.ops.launch("read_bandwidth").tensor(dst).tensor(src).int(src.Size()/16).
		run(blocks{readBlocks * d.drv.multiprocessors(), 1, 1}, readThreads)
}

// gemmRate is the operations per second of a large GEMM, and what computed it.
func (d *dev) gemmRate() (rate float64, by string) {
	n := rooflineGEMM
	for n > 64 && uint64(4*n*n) > d.drv.available()/rooflineMemory {
		n /= 2
	}
	w, err := d.Alloc(device.BF16, n, n)
	if err != nil {
		return 0, "no memory for a product"
	}
	d.Write(w, normalBF16(n*n))
	ops := 2 * float64(n) * float64(n) * float64(n)
	size := fmt.Sprintf("a product of %d³ in bfloat16 by ", n)
	each, err := d.timeLibrary(w)
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
	d.Write(x, normalF32(n*n))
	if each, err = d.timeOf(func() error { device.Do(d.ops, device.MatMul{Dst: dst, X: x, W: w}); return nil }); err != nil {
		return 0, "a product failed"
	}
	return ops / each, size + ownProducts
}

// timeLibrary times w·wᵀ of bfloat16 by cuBLASLt.
func (d *dev) timeLibrary(w device.Tensor) (seconds float64, err error) {
	if !d.drv.hasLibrary() {
		return 0, errors.New("no cuBLASLt is found")
	}
	n := w.Dim(0)
	dst, err := d.Alloc(device.BF16, n, n)
	if err != nil {
		return 0, err
	}
	return d.timeOf(func() error {
		return d.drv.multiplyBF16(d.address(dst), d.address(w), d.address(w), n, d.operands.at+uintptr(operandsSize))
	})
}

// timeOf is the seconds of a call, the mean of many back to back after a warm-up.
func (d *dev) timeOf(call func() error) (float64, error) {
	timed := func(n int) (time.Duration, error) {
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
	if _, err := timed(1); err != nil {
		return 0, err
	}
	for n := 1; ; n *= 2 {
		took, err := timed(n)
		if err != nil {
			return 0, err
		}
		if took >= rooflineTime {
			return took.Seconds() / float64(n), nil
		}
	}
}

// normalBF16 is n normally distributed numbers in bfloat16.
func normalBF16(n int) []byte {
	rng := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, 2*n)
	for i := range min(n, rooflineRandom) {
		binary.LittleEndian.PutUint16(b[2*i:], uint16(math.Float32bits(float32(rng.NormFloat64()))>>16))
	}
	return repeatBytes(b, 2*rooflineRandom)
}

// normalF32 is n normally distributed numbers in f32.
func normalF32(n int) []byte {
	rng := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, 4*n)
	for i := range min(n, rooflineRandom) {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(rng.NormFloat64())))
	}
	return repeatBytes(b, 4*rooflineRandom)
}

// repeatBytes fills b with its first n bytes.
func repeatBytes(b []byte, n int) []byte {
	for at := n; at < len(b); at *= 2 {
		copy(b[at:], b[:at])
	}
	return b
}
