package devtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// headless are the calls and rules none of whose tensors has the head dimension: they work on
// activations, scores, lists, sketches, columns and diagonals. Each file of cases names its own.
var headless = slices.Concat(mathHeadless, tokensHeadless, walkHeadless, topHeadless, groupHeadless, partsHeadless, linesHeadless, hittersHeadless)

// calls are the names of the calls that cases gave to a backend.
type calls struct {
	all     map[string]bool
	groups  int
	first   []testCase      // the first case of each op
	checked map[string]bool // by accesses
	heads   map[string]bool // by the cases that run at every shape of heads
}

// noting is a queue that notes what it is given.
type noting struct {
	device.Queue
	seen  *calls
	heads bool
}

// Do notes a call and queues it.
func (n *noting) Do(c device.Call) {
	name := device.Name(c)
	n.seen.all[name] = true
	if n.heads {
		n.seen.heads[name] = true
	}
	n.Queue.Do(c)
}

// group runs the cases of a group.
func (s *calls) group(cases func() []testCase) func(t *testing.T, d device.Device) {
	return func(t *testing.T, d device.Device) {
		all := cases()
		s.keepFirst(all)
		s.runAll(t, d, all, strings.HasSuffix(t.Name(), "/heads"))
	}
}

// keepFirst keeps the first case of each op by name: cases are made of maps, and come in any order.
func (s *calls) keepFirst(cases []testCase) {
	cases = slices.SortedFunc(slices.Values(cases), func(a, b testCase) int { return strings.Compare(a.name, b.name) })
	seen := map[string]bool{}
	for _, c := range cases {
		op, _, _ := strings.Cut(c.name, "/")
		if !seen[op] {
			seen[op] = true
			s.first = append(s.first, testCase{op, c.make})
		}
	}
}

// complete: every call and every rule has a case, and one at every shape of heads unless it is
// headless.
func (s *calls) complete(t *testing.T) {
	for _, name := range device.Rules() {
		if !s.all[name] {
			t.Errorf("%s: no case runs it", name)
		}
		if name != "Discard" && s.heads[name] == slices.Contains(headless, name) {
			t.Errorf("%s: a rule whose tensors have the head dimension needs a case in headCases, another is named in the headless list of its file", name)
		}
	}
	if n := len(headShapes); n != 17 {
		t.Errorf("%d shapes of heads, want 17: 5 head dimensions with 1, 4 and 8 heads for a kv head, and 2 with 7", n)
	}
}
