//go:build cuda || cudaemu

package cuda

import "time"

// mark records event i of device.Mark behind the launches so far.
func (d *dev) mark(i int) {
	for len(d.marks) <= i {
		e, err := d.drv.newEvent()
		if err != nil {
			d.keep(err)
			return
		}
		d.marks = append(d.marks, e)
	}
	d.keep(d.drv.record(d.marks[i]))
}

// Between is the time from mark i to mark j.
func (d *dev) Between(i, j int) (time.Duration, error) {
	return d.drv.elapsed(d.marks[i], d.marks[j])
}
