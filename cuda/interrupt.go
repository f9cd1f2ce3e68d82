//go:build cuda || cudaemu

package cuda

// fenceInterval is the number of launches between two fences of a pass that may be
// interrupted. At most twice as many are queued on the device.
const fenceInterval = 12

// Until makes launches do nothing once done is closed. Until then the host stays close behind
// the device, because launches that are queued cannot be taken back.
func (d *dev) Until(done <-chan struct{}) {
	d.ops.Flush()
	d.done, d.launched = done, 0
}

// cancelled counts a launch of an interruptible pass, and reports whether it must not be made.
func (d *dev) cancelled() bool {
	if d.done == nil || d.capturing {
		return false
	}
	select {
	case <-d.done:
		return true
	default:
	}
	if d.launched++; d.launched%fenceInterval == 0 {
		d.fence()
	}
	return false
}

// fence waits for the launches before the fence before the last one, and records a new one.
func (d *dev) fence() {
	e := &d.fences[d.launched/fenceInterval%len(d.fences)]
	if !d.hasFences {
		for i := range d.fences {
			var err error
			if d.fences[i], err = d.drv.newEvent(); err != nil {
				d.keep(err)
				return
			}
		}
		d.hasFences = true
	}
	d.keep(d.drv.wait(*e))
	d.keep(d.drv.record(*e))
}
