package devtest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// headless are the ops of which no tensor has the numbers of a head: they work on
// activations, or on scores, lists, sketches and lines that others have made.
var headless = strings.Fields(`
	Do Arena
	Embed Gather Copy Add RMSNorm SwiGLU MatMul Sample Discard
	Softmax SumHeads MaxHeads TopK TopP
	CompareBlocks Walk TopBlocks
	TopParts ListLines TopLines ListBlocks KeepBest
`)

// TestEveryOpAtEveryShape: an op that takes heads and has no case over headShapes may
// fail at a user's head dimension, and nobody would know.
func TestEveryOpAtEveryShape(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range headCases {
		for name := range strings.FieldsSeq(c.ops) {
			covered[name] = true
		}
	}
	names := device.CallNames()
	for m := range reflect.TypeFor[device.Ops]().Methods() {
		names = append(names, m.Name)
	}
	for _, name := range names {
		if covered[name] == slices.Contains(headless, name) {
			t.Errorf("op %s: either it takes heads, then headCases needs a case of it, or it does not, then it belongs in headless", name)
		}
		delete(covered, name)
	}
	for name := range covered {
		t.Errorf("headCases names %s, which is no call and no method of device.Ops", name)
	}
	if n := len(headShapes); n != 15 {
		t.Errorf("%d shapes, want 15", n)
	}
}
