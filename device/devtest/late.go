package devtest

import (
	"bytes"

	"github.com/gollm/gollm/device"
)

// lateCopier is a device that can bring inputs late, which is for tests: one whose calls
// start before those in front of them are done.
type lateCopier interface {
	// LateCopies copies tensors a good while after the next call could have started.
	LateCopies(dst, src []device.Tensor)
}

// late runs a job whose inputs arrive right in front of it: a call that reads them before
// it has waited for what runs in front of it gives other bits than the eager one.
func (b *bed) late(j job, eager []byte) {
	b.t.Helper()
	d, ok := b.d.(lateCopier)
	if !ok {
		return
	}
	b.restore()
	var to, from []device.Tensor
	free, err := b.d.Scope(func() error {
		for _, c := range b.first {
			if !c.written() {
				continue
			}
			x, err := b.d.Alloc(c.t.DType, len(c.b)/4)
			if err != nil {
				return err
			}
			b.d.Write(x, c.b)
			b.d.Write(c.t, c.wrong())
			to, from = append(to, c.t), append(from, x)
		}
		return nil
	})
	if err != nil {
		b.t.Fatalf("Alloc: %v", err)
	}
	b.sync()
	d.LateCopies(to, from)
	j.step(b.d.Queue())
	b.sync()
	if !bytes.Equal(b.results(j), eager) {
		b.t.Error("calls whose inputs are late give other bits than eager ones")
	}
	if err := free(); err != nil {
		b.t.Errorf("free: %v", err)
	}
}

// written reports whether steps write such tensors: activations and lists. Vectors of
// weights, ids, lengths, positions and page tables are there before a step begins.
func (c contents) written() bool {
	least := 2
	if c.t.DType == device.I32 {
		least = 3
	}
	return !c.kept && c.t.Size() > 0 && c.t.Rank() >= least && (c.t.DType == device.F32 || c.t.DType == device.I32)
}

// wrong is other contents: numbers that are all alike, and the first position.
func (c contents) wrong() []byte {
	if c.t.DType == device.I32 {
		return make([]byte, len(c.b))
	}
	return bytes.Repeat([]byte{0x41}, len(c.b))
}
