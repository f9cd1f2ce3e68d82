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
func (d *dev) Roofline() device.Roofline {
	n := d.pool.Workers()
	return device.Roofline{
		Read:  readPeak(n),
		Int8:  together(n, func(int) float64 { return kernel.PeakInt8(peakTime) }),
		Float: together(n, func(int) float64 { return kernel.PeakFloat32(peakTime) }),
		How:   "all threads reading 256 MiB each; the instructions of the products, on registers",
	}
}

// readPeak is the bytes per second that n threads read from memory together: the
// best of some rounds, each as long as its slowest thread.
func readPeak(n int) float64 {
	blocks := make([]*memory, n)
	for i := range blocks {
		m, err := newMemory(peakData)
		if err != nil {
			return 0
		}
		defer m.free() // nothing depends on it
		for at := 0; at < len(m.data); at += pageSize {
			m.data[at] = 1 // pages that were never written are all one page of zeros, which a cache keeps
		}
		blocks[i] = m
	}
	best := 0.0
	for start := time.Now(); time.Since(start) < 2*peakTime; {
		before := time.Now()
		together(n, func(i int) float64 { return kernel.ReadBandwidth(blocks[i].data, 0) })
		best = max(best, float64(n*peakData)/time.Since(before).Seconds())
	}
	return best
}

// together runs measure on n threads at the same time and adds up what they
// return.
func together(n int, measure func(i int) float64) float64 {
	var all sync.WaitGroup
	rates := make([]float64, n)
	for i := range rates {
		all.Go(func() { rates[i] = measure(i) })
	}
	all.Wait()
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum
}
