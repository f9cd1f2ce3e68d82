package cpu

import (
	"sync"
	"time"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
)

const (
	measureTime = 250 * time.Millisecond // of each measurement
	readBytes   = 256 << 20              // bytes that each thread reads: more than the caches hold
	pageSize    = 4 << 10                // bytes; no system has smaller pages
)

// Roofline measures the memory bandwidth and the arithmetic peaks of all threads at the same
// time. It takes about a second and 256 MiB of memory for each thread, which it frees. Read is
// 0, unknown, where that memory cannot be allocated.
func (d *dev) Roofline() device.Roofline {
	n := d.pool.Workers()
	return device.Roofline{
		Read:  readBandwidth(n),
		Int8:  onAllThreads(n, func(int) float64 { return kernel.PeakInt8(measureTime) }),
		Float: onAllThreads(n, func(int) float64 { return kernel.PeakFloat32(measureTime) }),
		How:   "all threads reading 256 MiB each; the instructions of the products, on registers",
	}
}

// readBandwidth is the bytes per second that n threads read from memory in all: the best of
// some rounds, each as long as its slowest thread.
func readBandwidth(n int) float64 {
	blocks := make([]*memory, n)
	for i := range blocks {
		m, err := newMemory(readBytes)
		if err != nil {
			return 0
		}
		defer m.free() // an error changes nothing here
		for at := 0; at < len(m.data); at += pageSize {
			m.data[at] = 1 // pages that were never written are one shared page of zeros, which caches hold
		}
		blocks[i] = m
	}
	best := 0.0
	for start := time.Now(); time.Since(start) < 2*measureTime; {
		before := time.Now()
		onAllThreads(n, func(i int) float64 { return kernel.ReadBandwidth(blocks[i].data, 0) })
		best = max(best, float64(n*readBytes)/time.Since(before).Seconds())
	}
	return best
}

// onAllThreads runs measure on n threads at the same time and returns the sum of its results.
func onAllThreads(n int, measure func(i int) float64) float64 {
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
