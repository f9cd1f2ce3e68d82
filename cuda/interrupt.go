//go:build cuda || cudaemu

package cuda

// together is how many launches are queued between two marks of a pass that may be
// interrupted; twice as many may wait on the device.
const together = 12

// Until makes calls do nothing once done is closed. Until then the host does not run
// far ahead of the device: what is queued cannot be taken back.
func (d *dev) Until(done <-chan struct{}) {
	d.ops.Flush()
	d.done, d.launched = done, 0
}

// drops reports whether the next launch is not wanted any more.
func (d *dev) drops() bool {
	if d.done == nil || d.capturing {
		return false
	}
	select {
	case <-d.done:
		return true
	default:
	}
	if d.launched++; d.launched%together == 0 {
		d.turn()
	}
	return false
}

// turn waits until the launches before the last turn are done.
func (d *dev) turn() {
	m := &d.turns[d.launched/together%len(d.turns)]
	if !d.turning {
		for i := range d.turns {
			var err error
			if d.turns[i], err = d.drv.newMark(); err != nil {
				d.keep(err)
				return
			}
		}
		d.turning = true
	}
	d.keep(d.drv.wait(*m))
	d.keep(d.drv.record(*m))
}
