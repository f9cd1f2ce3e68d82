package sparse

import (
	"fmt"
	"testing"
)

// BenchmarkQuest times a decode step of one layer, as BenchmarkSketchwalk does.
func BenchmarkQuest(b *testing.B) {
	for _, n := range []int{8 << 10, 32 << 10, 64 << 10} {
		for _, spec := range []string{"quest(budget=0.1)", "quest(budget=0.1,share=group)", "quest(budget=0.1,page=64)", "quest(budget=0.1,page=64,share=group)"} {
			b.Run(fmt.Sprintf("positions=%d/%s", n, spec), func(b *testing.B) { benchSpec(b, spec, n, 1) })
		}
	}
}

// BenchmarkPatterns times the newest rows of a prompt in one layer, selecting
// included.
func BenchmarkPatterns(b *testing.B) {
	for _, n := range []int{8 << 10, 32 << 10} {
		for _, spec := range []string{"vslash(pattern=per_chunk)", "vslash(vertical=500,slash=1000,pattern=per_chunk)", "flexprefill(pattern=per_chunk)", "flexprefill(gamma=0.5,tau=0,pattern=per_chunk)"} {
			b.Run(fmt.Sprintf("positions=%d/%s", n, spec), func(b *testing.B) { benchSpec(b, spec, n, 2048) })
		}
	}
}
