//go:build cuda || cudaemu

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gollm/gollm/device"
)

// memory is an allocation in device memory.
type memory struct {
	at   uintptr // device address
	size int

	constant bool // of Load: no kernel writes it
}

// Size is the number of bytes.
func (m *memory) Size() int { return m.size }

// Alloc returns zeroed memory.
func (d *dev) Alloc(dt device.DType, dims ...int) (device.Tensor, error) {
	size, err := device.SizeOf(dt, dims...)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cuda: Alloc: %w", err)
	}
	m, err := d.newMemory(size)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cuda: Alloc: %v %v: %w", dt, dims, err)
	}
	return device.NewTensor(m, 0, dt, dims...), nil
}

// Load returns a tensor with a copy of src.
func (d *dev) Load(src []byte, dt device.DType, dims ...int) (device.Tensor, error) {
	size, err := device.SizeOf(dt, dims...)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cuda: Load: %w", err)
	}
	if size != len(src) {
		return device.Tensor{}, fmt.Errorf("cuda: Load: %v %v takes %d bytes, got %d", dt, dims, size, len(src))
	}
	m, err := d.newMemory(size)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cuda: Load: %v %v: %w", dt, dims, err)
	}
	m.constant = true
	d.preparing.Do(func() { d.prepared.Go(d.drv.prepare) }) // while the rest is loaded
	d.upload(m, src)
	return device.NewTensor(m, 0, dt, dims...), nil
}

// uploadPart is the bytes per copy of an upload.
const uploadPart = 4 << 20

// upload queues a copy of src, which may be a memory-mapped file, to m. Every page is touched
// here first: if the file has been truncated since, that is a fault that Go can recover from,
// where in the driver it would kill the process. A file that is truncated between the two
// still does.
func (d *dev) upload(m *memory, src []byte) {
	at := m.at
	for part := range slices.Chunk(src, uploadPart) {
		readPages(part)
		d.keep(d.drv.write(at, part))
		at += uintptr(len(part))
	}
}

// pagesRead keeps the compiler from eliminating the reads of readPages.
var pagesRead atomic.Uint32

// readPages reads a byte of every page of b.
func readPages(b []byte) {
	sum := uint32(0)
	for i := 0; i < len(b); i += 4 << 10 {
		sum += uint32(b[i])
	}
	pagesRead.Store(sum + uint32(b[len(b)-1]))
}

// Scope runs f and returns what frees the memory that it allocated.
func (d *dev) Scope(f func() error) (free func() error, err error) {
	before := len(d.mems)
	err = f()
	own := slices.Clone(d.mems[before:])
	free = func() error {
		if d.mems == nil { // closed
			return nil
		}
		d.mems = slices.DeleteFunc(d.mems, func(m *memory) bool { return slices.Contains(own, m) })
		mems := own
		own = nil
		return d.freeAll(mems)
	}
	if err != nil {
		return nil, errors.Join(err, free())
	}
	return free, nil
}

// freeAll waits for the stream and frees memory; it returns the first error.
func (d *dev) freeAll(mems []*memory) error {
	if len(mems) == 0 {
		return nil
	}
	d.ops.Flush()
	first := d.drv.sync()
	for _, m := range mems {
		if err := d.drv.free(m.at); err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return fmt.Errorf("cuda: free: %w", first)
	}
	return nil
}

// newMemory allocates size zeroed bytes; its error says how many are free.
func (d *dev) newMemory(size int) (*memory, error) {
	if free := d.drv.available(); uint64(size) > free {
		return nil, outOfMemory(size, free)
	}
	at, err := d.drv.alloc((size + 16) / 16 * 16) // kernels load 16 bytes at a time
	if err != nil {
		return nil, fmt.Errorf("%w: %w", outOfMemory(size, d.drv.available()), err)
	}
	m := &memory{at: at, size: size}
	d.mems = append(d.mems, m)
	return m, nil
}

// outOfMemory is the error of an allocation that does not fit.
func outOfMemory(size int, free uint64) error {
	const unit = 1 << 20
	return fmt.Errorf("%.1f MiB (%d bytes) are needed, %.1f MiB are free on the device", float64(size)/unit, size, float64(free)/unit)
}

// address is the device address of t, 0 if it is absent.
func (d *dev) address(t device.Tensor) uintptr {
	if t.Absent() {
		return 0
	}
	m, ok := t.Memory().(*memory)
	if !ok {
		device.Check(ok, "tensor", "%v is not of this device", t)
	}
	return m.at + uintptr(t.Offset())
}
