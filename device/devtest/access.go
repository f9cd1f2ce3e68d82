package devtest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// accesses: calls read and write what they say. A backend tells by it which launches may
// overlap, so what is missing there is a race that no other case of the suite shows.
//
// Before each call every tensor of the case that the call says nothing of is overwritten
// with ones, NaN or -1, and afterwards it must still hold them: a call that reads more than
// it says has other results, and one that writes more leaves a trace. The results are those of
// the same calls without that, one by one, to the bit.
func (s *calls) accesses(t *testing.T, d device.Device) {
	seen := map[string]bool{}
	for _, c := range append(s.first, shapeCases()...) {
		name, _, _ := strings.Cut(strings.TrimPrefix(c.name, "op="), "/heads=")
		if seen[name] {
			continue
		}
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			b := newBed(t, d)
			j := c.make(b)
			j.step(&oneByOne{d.Queue(), b})
			b.sync()
			alone := b.each(j)
			b.restore()
			j.step(&suspicious{Queue: d.Queue(), b: b, t: t, seen: s.checked})
			b.sync()
			for i, got := range b.each(j) {
				if e := j.expect[i]; !equalDefined(got, alone[i], e.undefined) {
					t.Errorf("%s depends on a tensor of which the calls say nothing", e.name)
				}
			}
		})
	}
	for _, name := range device.Rules() {
		if !s.checked[name] && s.all[name] {
			t.Errorf("%s: no case here runs it", name)
		}
	}
}

// oneByOne is a queue that fuses nothing: a call is complete before the next one starts.
type oneByOne struct {
	device.Queue
	b *bed
}

// Do runs a call by itself.
func (q *oneByOne) Do(c device.Call) {
	q.Queue.Do(c)
	q.b.sync()
}

// each is the contents now of each tensor that a job expects.
func (b *bed) each(j job) [][]byte {
	var all [][]byte
	for _, e := range j.expect {
		all = append(all, b.raw(e.got))
	}
	return all
}

// equalDefined reports whether two tensors hold the same, but for elements that are undefined.
func equalDefined(x, y []byte, undefined []bool) bool {
	if len(undefined) == 0 || len(x) != len(y) {
		return bytes.Equal(x, y)
	}
	size := len(x) / len(undefined)
	for i, u := range undefined {
		if from := i * size; !u && !bytes.Equal(x[from:from+size], y[from:from+size]) {
			return false
		}
	}
	return true
}

// suspicious is a queue that holds calls to what they say they read and write.
type suspicious struct {
	device.Queue
	b    *bed
	t    *testing.T
	seen map[string]bool
}

// Do runs a call by itself.
func (q *suspicious) Do(c device.Call) {
	q.t.Helper()
	name := device.Name(c)
	q.seen[name] = true
	var a device.Access
	c.Access(&a)
	if len(a.Reads)+len(a.Writes) == 0 || name == "Discard" {
		q.Queue.Do(c)
		return
	}
	ones := map[device.Tensor][]byte{} // what the tensors held that are all ones now
	only := map[device.Tensor][]byte{} // what those hold that are only read
	for _, x := range q.b.first {
		switch {
		case touches(a.Writes, x.t):
		case touches(a.Reads, x.t):
			only[x.t] = q.b.raw(x.t)
		default:
			ones[x.t] = q.b.raw(x.t)
			q.b.d.Write(x.t, bytes.Repeat([]byte{0xff}, x.t.Size()))
		}
	}
	q.Queue.Do(c)
	for x, held := range ones {
		if got := q.b.raw(x); bytes.Count(got, []byte{0xff}) != len(got) {
			q.t.Errorf("%s writes %v, of which it says nothing", name, x)
		}
		q.b.d.Write(x, held)
	}
	for x, held := range only {
		if !bytes.Equal(q.b.raw(x), held) {
			q.t.Errorf("%s writes %v, which it says it reads", name, x)
		}
	}
}

// touches reports whether any of the tensors lies in x.
func touches(tensors []device.Tensor, x device.Tensor) bool {
	for _, t := range tensors {
		if t.Overlaps(x) {
			return true
		}
	}
	return false
}
