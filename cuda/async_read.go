//go:build cuda || cudaemu

package cuda

import (
	"encoding/binary"

	"github.com/gollm/gollm/device"
)

// deliverySize is the bytes of a delivery in memory of the host: what is delivered, and
// the code of a failure.
const deliverySize = device.MaxAsyncBytes + 16

// delivery is a place in memory of the host that the device writes to.
type pendingRead struct {
	d    *dev
	at   int  // in d.delivered
	mark mark // when it is there
	size int  // bytes
}

// deliveries are the places, taken in turn.
type pendingReads struct {
	memory hostMemory
	all    [device.MaxPendingReads + 1]pendingRead // the last one is that of Sync
	next   int
}

// openDeliveries takes the memory of the host.
func (d *dev) openDeliveries() (err error) {
	t := &d.reads
	if t.memory, err = d.drv.allocHost(len(t.all) * deliverySize); err != nil {
		return err
	}
	for i := range t.all {
		t.all[i] = pendingRead{d: d, at: i * deliverySize}
		if t.all[i].mark, err = d.drv.newMark(); err != nil {
			return err
		}
		d.marked = append(d.marked, t.all[i].mark)
	}
	return nil
}

// Deliver queues copies to the host.
func (d *dev) ReadAsync(src ...device.Tensor) device.PendingRead {
	t := &d.reads
	v := &t.all[t.next%device.MaxPendingReads]
	t.next++
	v.queue(src...)
	return v
}

// queue queues copies of tensors, and of whether anything has failed.
func (v *pendingRead) queue(src ...device.Tensor) {
	const op = "Deliver"
	if len(src) > device.MaxAsyncTensors {
		device.Check(false, op, "%d tensors, want %d at most", len(src), device.MaxAsyncTensors)
	}
	d := v.d
	d.ops.Flush()
	t := &d.reads
	v.size = 0
	c := d.ops.call("copy_to_host").word(uint64(t.memory.device) + uint64(v.at))
	for i := range device.MaxAsyncTensors {
		if i < len(src) {
			c.tensor(src[i])
			v.size += src[i].Size()
		} else {
			c.word(0)
		}
	}
	if v.size > device.MaxAsyncBytes || v.size%4 != 0 {
		device.Check(false, op, "%d bytes, want words and %d at most", v.size, device.MaxAsyncBytes)
	}
	for i := range device.MaxAsyncTensors {
		if i < len(src) {
			c.int(src[i].Size() / 4)
		} else {
			c.int(0)
		}
	}
	c.failures().pdlEarly().run(blocks{1, 1, 1}, 32)
	d.keep(d.drv.record(v.mark))
}

// failed reports whether a kernel had failed when the copies were made.
func (v *pendingRead) failed() bool {
	return binary.LittleEndian.Uint32(v.d.reads.memory.bytes[v.at+device.MaxAsyncBytes:]) != 0
}

// Wait waits for the copies.
func (v *pendingRead) Wait(dst ...[]byte) error {
	d := v.d
	d.keep(d.drv.wait(v.mark))
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
		device.Check(false, "Deliver", "%d bytes are there, %d were asked for", v.size, size)
	}
	return nil
}
