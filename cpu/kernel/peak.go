package kernel

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"time"
	"unsafe"
)

// The peaks of this processor, for rooflines. Each is measured on the calling thread, with the
// instruction set in use, as the best of the runs that fit into the given time.

// peakLoops are the loops that peaks are measured with. Their iterations are arithmetic without
// memory traffic, or memory traffic without arithmetic.
type peakLoops struct {
	integer  func(iterations int)
	float    func(iterations int)
	read     func(data *byte, iterations int)
	integers float64 // int8 operations of an iteration, two to a multiply-add
	floats   float64 // float32 operations of an iteration, two to a multiply-add
}

// readBytes is how many bytes an iteration of read reads.
const readBytes = 512

// ReadBandwidth is how many bytes per second one thread reads from data. Data
// larger than the last cache measures memory.
func ReadBandwidth(data []byte, d time.Duration) float64 {
	iterations := len(data) / readBytes
	if iterations == 0 {
		return 0
	}
	return float64(iterations*readBytes) * fastest(d, func() { current.peak.read(&data[0], iterations) })
}

// PeakInt8 is how many int8 operations per second one thread computes, two to
// a multiply-add: the limit of products with quantized matrices.
func PeakInt8(d time.Duration) float64 {
	const iterations = 1000
	return iterations * current.peak.integers * fastest(d, func() { current.peak.integer(iterations) })
}

// PeakFloat32 is how many float32 operations per second one thread computes,
// two to a multiply-add: the limit of products with float matrices.
func PeakFloat32(d time.Duration) float64 {
	const iterations = 1000
	return iterations * current.peak.floats * fastest(d, func() { current.peak.float(iterations) })
}

// fastest is how many times per second f runs, by the shortest of the runs within d, at least
// one.
func fastest(d time.Duration, f func()) float64 {
	shortest := time.Duration(math.MaxInt64)
	for start := time.Now(); ; {
		before := time.Now()
		f()
		shortest = min(shortest, time.Since(before))
		if time.Since(start) >= d {
			return 1 / max(shortest, 1).Seconds()
		}
	}
}

// peakSink keeps the compiler from dropping the portable loops.
var peakSink atomic.Uint32

// portablePeak does in Go what the portable products do.
var portablePeak = peakLoops{
	integer: func(iterations int) {
		var w [32]int8
		var q [32]uint8
		for range iterations {
			peakSink.Add(uint32(dotInts(w[:], q[:])))
		}
	},
	float: func(iterations int) {
		var acc [8]float32
		for range iterations {
			for i := range acc {
				acc[i] = fma(acc[i], 0.5, 1)
			}
		}
		peakSink.Add(math.Float32bits(acc[0]))
	},
	read: func(data *byte, iterations int) {
		var sum uint64
		for p := unsafe.Slice(data, iterations*readBytes); len(p) >= 8; p = p[8:] {
			sum += binary.LittleEndian.Uint64(p)
		}
		peakSink.Add(uint32(sum))
	},
	integers: 64,
	floats:   16,
}
