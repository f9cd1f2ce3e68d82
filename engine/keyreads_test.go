package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// readNothing are the calls that read no stored keys, or only such as the plan
// that they make reads as well.
var readNothing = strings.Fields(`
	Embed Gather Copy Add RMSNorm Rope SwiGLU MatMul SampleTokens Mark Discard
	Append Attend Walk
	Summarize(SumBlocks) Summarize(ProjectMeans) Summarize(ProjectRows) Summarize(KeyBounds)
	Summarize(KeyChannels) Summarize(KeySigns) Summarize(KeyHashes) Summarize(MeanRows)
	Score(BoundScores) Score(ChannelScores) Score(SignScores) Score(SketchScores) Score(AnchorMax)
	Score(PooledAgreement) Score(GroupMax)
	Select(TopK) Select(TopP) Select(TopBlocks) Select(TopParts) Select(TopLines) Select(HeavyHitters)
	Select(Collisions) Select(ExpandLines) Select(ExpandBlocks)
	Sample(ResidualSample) Sample(QueryFeatureSample)
`)

// TestSpyKnowsEveryCall: a call that reads keys to choose and is not noted would be
// missing in every audit without a word.
func TestSpyKnowsEveryCall(t *testing.T) {
	rules := device.Rules()
	for _, name := range rules {
		if (notes[name] != nil) == slices.Contains(readNothing, name) {
			t.Errorf("call %s: either it reads keys to choose, then spy.go has to note it, or it does not, then it belongs in this list", name)
		}
	}
	for name := range notes {
		if !slices.Contains(rules, name) {
			t.Errorf("spy.go notes %s, which is no call", name)
		}
	}
}
