//go:build cuda || cudaemu

package cuda

import "time"

// mark sets a mark to the time at which all calls before it are done.
func (d *dev) mark(i int) {
	for len(d.marks) <= i {
		m, err := d.drv.newMark()
		if err != nil {
			d.keep(err)
			return
		}
		d.marks = append(d.marks, m)
	}
	d.keep(d.drv.record(d.marks[i]))
}

// Between is the time from one mark to another.
func (d *dev) Between(i, j int) (time.Duration, error) {
	return d.drv.between(d.marks[i], d.marks[j])
}
