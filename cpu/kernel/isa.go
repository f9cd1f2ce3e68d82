package kernel

import "fmt"

// ISA is a set of instructions that the inner loops can use.
type ISA string

// The instruction sets, best last.
const (
	Portable ISA = "portable" // plain Go, on every processor
	AVX2     ISA = "avx2"     // AVX2, FMA and F16C
	AVX512   ISA = "avx512"   // AVX-512 F, BW, DQ, VL and VNNI
)

// loops is the inner loops for one ISA.
type loops struct {
	isa      ISA
	compute  func(p *Product, b *Batch, s *Scratch, lo, hi int)
	quantize func(dst []actBlock, step int, x []float32, s scaling)
	peak     *peakLoops
}

// portable is the definition.
var portable = loops{Portable, computeGo, quantizeGo, &portablePeak}

// available is what this processor can run, best last; current is in use.
var (
	available = append([]loops{portable}, nativeLoops()...)
	current   = available[len(available)-1]
)

// ISAs lists the instruction sets that this processor has, best last.
func ISAs() []ISA {
	var names []ISA
	for _, l := range available {
		names = append(names, l.isa)
	}
	return names
}

// Current is the instruction set in use: the best one unless Use selected another.
func Current() ISA { return current.isa }

// Use makes later products run on isa. It is for start-up and tests: no
// product may be running.
func Use(isa ISA) error {
	for _, l := range available {
		if l.isa == isa {
			current = l
			return nil
		}
	}
	return fmt.Errorf("kernel: this processor has no %q instructions; it has %v", isa, ISAs())
}
