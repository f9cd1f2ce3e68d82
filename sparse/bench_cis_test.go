package sparse

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkCIS times the attention of a decode step in one layer of the shape of
// Llama-3.2-1B beside dense attention, alternating: when every head selects, and
// when every head reuses. It reports the minimum time of each.
func BenchmarkCIS(b *testing.B) {
	for _, n := range []int{8 << 10, 32 << 10} {
		for _, options := range []string{"k=432", "k=0.1", "k=432,share=group", "k=0.1,share=group"} {
			b.Run(fmt.Sprintf("positions=%d/%s", n, options), func(b *testing.B) { benchCIS(b, n, options) })
		}
	}
}

func benchCIS(b *testing.B, n int, options string) {
	l := newDecodeLayer(b, n)
	dense, denseTime := l.policy("dense")
	alone, aloneTime := l.policy("cis(s=64,tau=2," + options + ")")
	shared, sharedTime := l.policy("cis(s=64,tau=-1," + options + ")")
	l.seq.Truncate(n - 1)
	l.cache.Flush(l.seq)
	l.step(shared) // selects
	*sharedTime = stopwatch{selecting: time.Hour, attend: time.Hour}
	must(b, l.seq.Extend(1, nil))
	l.cache.Flush(l.seq)
	for b.Loop() {
		l.step(dense)
		l.step(alone)
		l.step(shared)
	}
	must(b, l.dev.Sync())
	l.report(denseTime.attend, "ms-dense")
	l.report(aloneTime.selecting, "ms-select")
	l.report(sharedTime.selecting, "ms-share")
	l.report(sharedTime.attend, "ms-attend")
}
