package cpu

import (
	"sync"
	"time"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
)

const (
	peakTime = 250 * time.Millisecond // of each measurement
	peakData = 256 << 20              // bytes that each thread reads: more than caches keep
	pageSize = 4 << 10                // bytes; no system has smaller pages
)

// Peaks measures what all threads can do at the same time: about a second, and
// 256 MiB of memory a thread, which it gives back. Read is unknown where the
// memory is not to be had.
func (d *dev) Peaks() device.Peaks {
	n := d.pool.Workers()
	return device.Peaks{
		Read:  together(n, readPeak),
		Int8:  together(n, func() float64 { return kernel.PeakInt8(peakTime) }),
		Float: together(n, func() float64 { return kernel.PeakFloat32(peakTime) }),
	}
}

// readPeak is the bytes per second that one thread reads from memory.
func readPeak() float64 {
	m, err := newMemory(peakData)
	if err != nil {
		return 0
	}
	defer m.free() // nothing depends on it
	for i := 0; i < len(m.data); i += pageSize {
		m.data[i] = 1 // pages that were never written are all one page of zeros, which a cache keeps
	}
	return kernel.ReadBandwidth(m.data, peakTime)
}

// together is the sum of what n threads measure at the same time.
func together(n int, measure func() float64) float64 {
	var all sync.WaitGroup
	rates := make([]float64, n)
	for i := range rates {
		all.Go(func() { rates[i] = measure() })
	}
	all.Wait()
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum
}
