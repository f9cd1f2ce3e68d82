package sparse_test

import (
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
)

// TestLowBitKeysReject: where keys of fewer bits make no sense, one error says so.
func TestLowBitKeysReject(t *testing.T) {
	for text, want := range map[string]string{
		"topk(index=q5)":                          `want one of: exact, q8, q4`,
		"topk(rescore=2)":                         `index=exact, which has nothing to score again`,
		"topk(index=q4,rescore=-1)":               `option rescore: -1, want 0 to 1024`,
		"topp(index=q4,rescore=2)":                `option "rescore" is unknown`,
		"santa(index=q8)":                         `want one of: exact`,
		"vattention(scorer=cis,top=20,index=q8)":  `scorer=cis, which ranks by an index of its own`,
		"vattention(index=exact,rescore=1)":       `index=exact, which has nothing to score again`,
		"cis(k=20,index=q8,rescore=2)":            `option "rescore" is unknown`,
		"cpe(k=20,index=q3)":                      `want one of: exact, q8, q4`,
		"prefill=dense decode=topk(index=q4,k=x)": `option k`,
	} {
		if _, err := sparse.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	must(t, err)
	defer dev.Close()
	for _, text := range []string{"topk(index=q8)", "topp(index=q4)", "cis(index=q4)", "cpe(index=q8)", "vattention(index=q8)"} {
		spec, err := sparse.Parse(text)
		must(t, err)
		shape := sparse.Shape{Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 12, MaxLen: 64, Slots: 1, Rows: 64, Pages: 1}
		if _, err = spec.Build(sparse.NewEnv(dev, shape, 1)); err == nil || !strings.Contains(err.Error(), "multiple of 8, and the model has 12") {
			t.Errorf("%s with heads of 12: %v", text, err)
		}
	}
}
