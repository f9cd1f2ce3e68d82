//go:build cuda || cudaemu

package cuda

import (
	"encoding/binary"

	"github.com/gollm/gollm/device"
)

// readSize is the bytes of a pending read in pinned host memory: the results, and the code of
// the first failure.
const readSize = device.MaxAsyncBytes + 16

// pendingRead is a buffer in pinned host memory that the kernel copy_to_host writes.
type pendingRead struct {
	d    *dev
	at   int   // offset in the pinned memory
	done event // recorded behind the copy
	size int   // bytes
}

// pendingReads are the buffers, used round robin.
type pendingReads struct {
	memory hostMemory
	all    [device.MaxPendingReads + 1]pendingRead // the last one is that of Sync
	next   int
}

// openReads allocates them.
func (d *dev) openReads() (err error) {
	r := &d.reads
	if r.memory, err = d.drv.allocHost(len(r.all) * readSize); err != nil {
		return err
	}
	for i := range r.all {
		r.all[i] = pendingRead{d: d, at: i * readSize}
		if r.all[i].done, err = d.drv.newEvent(); err != nil {
			return err
		}
		d.readEvents = append(d.readEvents, r.all[i].done)
	}
	return nil
}

// ReadAsync queues a copy of tensors to the host.
func (d *dev) ReadAsync(src ...device.Tensor) device.PendingRead {
	r := &d.reads
	v := &r.all[r.next%device.MaxPendingReads]
	r.next++
	v.queue(src...)
	return v
}

// queue queues a copy of tensors and of the failure code.
func (v *pendingRead) queue(src ...device.Tensor) {
	const op = "ReadAsync"
	if len(src) > device.MaxAsyncTensors {
		device.Check(false, op, "%d tensors, want %d at most", len(src), device.MaxAsyncTensors)
	}
	d := v.d
	d.ops.Flush()
	var all [device.MaxAsyncTensors]device.Tensor
	copy(all[:], src)
	v.size = 0
	c := d.ops.launch("copy_to_host").word(uint64(d.reads.memory.device) + uint64(v.at))
	for _, t := range all {
		c.tensor(t)
		v.size += t.Size()
	}
	if v.size > device.MaxAsyncBytes || v.size%4 != 0 {
		device.Check(false, op, "%d bytes, want a multiple of 4 and %d at most", v.size, device.MaxAsyncBytes)
	}
	for _, t := range all {
		c.int(t.Size() / 4)
	}
	c.failures().pdlEarly().run(blocks{1, 1, 1}, 32)
	d.keep(d.drv.record(v.done))
}

// failed reports whether a kernel had failed when the copy was made.
func (v *pendingRead) failed() bool {
	return binary.LittleEndian.Uint32(v.d.reads.memory.bytes[v.at+device.MaxAsyncBytes:]) != 0
}

// Wait waits for the copy and returns the results in dst.
func (v *pendingRead) Wait(dst ...[]byte) error {
	d := v.d
	d.keep(d.drv.wait(v.done))
	if d.err != nil || v.failed() {
		if err := d.Sync(); err != nil {
			return err
		}
	}
	size, bytes := 0, d.reads.memory.bytes[v.at:][:device.MaxAsyncBytes]
	for _, b := range dst {
		size += copy(b, bytes[size:v.size])
	}
	if size != v.size {
		device.Check(false, "ReadAsync", "%d bytes were read, Wait takes %d", v.size, size)
	}
	return nil
}
