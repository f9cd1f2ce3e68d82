package sparse

import (
	"fmt"
	"testing"
)

// BenchmarkSampling times the attention of a decode step in one layer of the
// shape of Llama-3.2-1B, of methods that sample beside dense attention,
// alternating. It reports the minimum time of each: what planning takes, and the
// attention of the plan.
func BenchmarkSampling(b *testing.B) {
	for _, n := range []int{8 << 10, 32 << 10} {
		for _, spec := range []string{
			"vattention", "vattention(share=group)", "streaming(sink=128,window=1600) + vattention", "santa", "santa:flash",
		} {
			b.Run(fmt.Sprintf("positions=%d/%s", n, spec), func(b *testing.B) { benchDecode(b, n, spec) })
		}
	}
}

func benchDecode(b *testing.B, n int, spec string) {
	l := newDecodeLayer(b, n)
	dense, denseTime := l.policy("dense")
	own, ownTime := l.policy(spec)
	for b.Loop() {
		l.step(dense)
		l.step(own)
	}
	must(b, l.dev.Sync())
	l.report(denseTime.attend, "ms-dense")
	l.report(ownTime.selecting, "ms-plan")
	l.report(ownTime.attend, "ms-attend")
}
