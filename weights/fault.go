package weights

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"unsafe"
)

// Guarded runs f. Where f, or a goroutine that carries its panics to f, reads a part of a
// mapped file that cannot be read any more, because the file was cut short or its disk
// failed, it returns an error that names the file; any other panic goes on. What f left
// undone stays undone: the program is to say so and end.
//
// Go makes a panic of such a fault for a goroutine that asked for it, as Guarded does.
// One that f starts and that reads weights calls debug.SetPanicOnFault itself.
func Guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			if err = fault(v); err == nil {
				panic(v)
			}
		}
	}()
	return f()
}

// fault is the error of a panic that came of reading a mapped file, nil for another.
func fault(v any) error {
	e, ok := v.(runtime.Error)
	if !ok {
		return nil
	}
	var at interface{ Addr() uintptr }
	if !errors.As(e, &at) {
		return nil
	}
	return mappings.lost(at.Addr())
}

// mapping is a file in memory, at the addresses from begin to end-1.
type mapping struct {
	path       string
	begin, end uintptr
	closed     bool
}

// mappingList knows what is mapped, and what was last: a command that ends by a panic
// closes its files before anyone can say which of them it was.
type mappingList struct {
	mu  sync.Mutex
	all []*mapping
}

var mappings mappingList

// add enters a file that was mapped, and returns how to say that it is no more.
func (l *mappingList) add(path string, data []byte) (closed func()) {
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	m := &mapping{path: path, begin: begin, end: begin + uintptr(len(data))}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(m *mapping) bool { return m.closed })
	l.all = append(l.all, m)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		m.closed = true
	}
}

// lost is the error of a fault at an address, nil where no mapped file explains it.
func (l *mappingList) lost(at uintptr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.all {
		if at >= m.begin && at < m.end {
			return m.explain(at)
		}
	}
	return nil
}

// explain says what has become of the file. One that is closed and as long as ever was
// read after Close, which is a mistake of this program.
func (m *mapping) explain(at uintptr) error {
	had := int64(m.end - m.begin)
	const advice = "start again; to replace a model, write a new file and rename it"
	info, err := os.Stat(m.path)
	switch {
	case err == nil && info.Size() < had:
		return fmt.Errorf("weights: %s was cut short while it was in use: it had %d bytes and has %d now; %s", m.path, had, info.Size(), advice)
	case m.closed:
		return nil
	}
	return fmt.Errorf("weights: %s: byte %d could not be read while the file was in use: it was overwritten, or its disk failed; %s", m.path, at-m.begin, advice)
}
