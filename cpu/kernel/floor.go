package kernel

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"time"
	"unsafe"
)

// The floors of this processor, for reports that set a speed beside what the
// machine allows. Each is the best turn within about the given time, on the
// calling thread and the instruction set in use.

// peakLoops are the loops that the floors are measured with. Their turns are
// operations or bytes without anything else.
type peakLoops struct {
	integer  func(turns int)
	float    func(turns int)
	read     func(data *byte, turns int)
	integers float64 // int8 operations of a turn, two to a product
	floats   float64 // float32 operations of a turn, two to a product
}

// readTurn is the bytes of a turn of read.
const readTurn = 512

// ReadBandwidth is how many bytes per second one thread reads from data. Data
// larger than the last cache measures memory.
func ReadBandwidth(data []byte, d time.Duration) float64 {
	turns := len(data) / readTurn
	if turns == 0 {
		return 0
	}
	return float64(turns*readTurn) * fastest(d, func() { current.peak.read(&data[0], turns) })
}

// PeakInt8 is how many int8 operations per second one thread computes, two to
// a product: the limit of products with quantized matrices.
func PeakInt8(d time.Duration) float64 {
	const turns = 1000
	return turns * current.peak.integers * fastest(d, func() { current.peak.integer(turns) })
}

// PeakFloat32 is how many float32 operations per second one thread computes,
// two to a product: the limit of products with float matrices.
func PeakFloat32(d time.Duration) float64 {
	const turns = 1000
	return turns * current.peak.floats * fastest(d, func() { current.peak.float(turns) })
}

// fastest is the most runs of f per second, by its shortest run of those within
// d, at least one.
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
	integer: func(turns int) {
		var w [32]int8
		var q [32]uint8
		for range turns {
			peakSink.Add(uint32(dotInts(w[:], q[:])))
		}
	},
	float: func(turns int) {
		var acc [8]float32
		for range turns {
			for i := range acc {
				acc[i] = fma(acc[i], 0.5, 1)
			}
		}
		peakSink.Add(math.Float32bits(acc[0]))
	},
	read: func(data *byte, turns int) {
		var sum uint64
		for p := unsafe.Slice(data, turns*readTurn); len(p) >= 8; p = p[8:] {
			sum += binary.LittleEndian.Uint64(p)
		}
		peakSink.Add(uint32(sum))
	},
	integers: 64,
	floats:   16,
}
