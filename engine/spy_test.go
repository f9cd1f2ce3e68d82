package engine

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// readNothing are the ops that read no stored keys, or only such as the plan
// that they make reads as well.
var readNothing = strings.Fields(`
	Do Arena
	Embed Gather Copy Add RMSNorm Rope SwiGLU MatMul Sample Discard
	Append Attend
	Softmax SumHeads MaxHeads TopK TopP
	BlockSum SketchMeans SketchRows CompareBlocks Walk TopBlocks
	SampleTail SampleFeatures
	EdgeMax MeanRows
	KeyBounds BoundScores TopParts
	ListLines Agree TopLines ListBlocks
	KeepBest
	HashKeys ListCollisions
	StoreChannels ChannelScores StoreSigns SignScores
`)

// TestSpyKnowsEveryOp: an op that reads keys to choose and is not noted would be
// missing in every audit without a word.
func TestSpyKnowsEveryOp(t *testing.T) {
	for _, name := range device.CallNames() {
		if !slices.Contains(readNothing, name) {
			t.Errorf("call %s: either it reads keys to choose, then spy.Do has to note it, or it does not, then it belongs in this list", name)
		}
	}
	ops := reflect.TypeFor[device.Ops]()
	own := reflect.TypeFor[*spy]()
	for i := range ops.NumMethod() {
		name := ops.Method(i).Name
		m, _ := own.MethodByName(name)
		file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer())
		noted := strings.HasSuffix(file, "spy.go")
		if noted == slices.Contains(readNothing, name) {
			t.Errorf("op %s: either it reads keys to choose, then spy.go needs a method of that name, or it does not, then it belongs in this list", name)
		}
	}
}
