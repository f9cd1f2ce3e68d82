package kernel

import (
	"testing"
	"time"
)

// TestPeaks measures peaks on every ISA, and reads no byte beyond the data.
func TestPeaks(t *testing.T) {
	defer Use(Current())
	for _, isa := range ISAs() {
		Use(isa)
		data := make([]byte, 1<<16+77)
		for name, speed := range map[string]float64{
			"ReadBandwidth": ReadBandwidth(data, time.Millisecond),
			"PeakInt8":      PeakInt8(time.Millisecond),
			"PeakFloat32":   PeakFloat32(time.Millisecond),
		} {
			if speed < 1e7 {
				t.Errorf("%s: %s is %.3g per second", isa, name, speed)
			}
		}
		if got := ReadBandwidth(data[:100], time.Millisecond); got != 0 {
			t.Errorf("%s: ReadBandwidth of less than an iteration is %v, want 0", isa, got)
		}
	}
}

func TestUse(t *testing.T) {
	if err := Use("sse9"); err == nil {
		t.Error("Use accepts an unknown instruction set")
	}
}
