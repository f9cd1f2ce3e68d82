package sparse_test

import (
	"slices"
	"testing"
)

// Networks that change nothing give the signs of queries and keys: the positions
// with the most equal signs are read, the lowest of equals.
func TestHashattentionRanksBySigns(t *testing.T) {
	const prompt, sink, window, k = lawLen - lawSteps, 4, 16, 20
	dir := t.TempDir()
	one := make([]float32, lawDim*lawDim)
	for i := range lawDim {
		one[i*lawDim+i] = 1
	}
	for _, name := range []string{"query", "key"} {
		sets := map[string]int{"query": lawHeads, "key": lawKVHeads}[name]
		must(t, save(dir, name+".0.weight", slices.Repeat(one, lawLayers*sets), lawLayers, sets, lawDim, lawDim))
		must(t, save(dir, name+".0.bias", make([]float32, lawLayers*sets*lawDim), lawLayers, sets, lawDim))
	}
	layers := lawTensors(1, lawLen)
	got := openBench(t, "hashattention(dir="+dir+",k=20,sink=4,window=16)", lawLen, nil).lists(layers, prompt)
	for i, set := range got {
		h, l, p := i%lawHeads, i/lawHeads%lawLayers, prompt+i/lawHeads/lawLayers
		q := layers[l].Q[(h*lawLen+p)*lawDim:][:lawDim]
		equal := func(j int32) (n int) {
			key := layers[l].K[(h*lawKVHeads/lawHeads*lawLen+int(j))*lawDim:][:lawDim]
			for c := range q {
				if (q[c] > 0) == (key[c] > 0) {
					n++
				}
			}
			return n
		}
		var region, want []int32
		for j := range int32(p + 1) {
			if j < sink || int(j) > p-window {
				want = append(want, j)
			} else {
				region = append(region, j)
			}
		}
		slices.SortStableFunc(region, func(a, b int32) int { return equal(b) - equal(a) })
		want = append(want, region[:k]...)
		slices.Sort(want)
		if !slices.Equal(set, want) {
			t.Fatalf("layer %d, row %d, head %d reads %v, want %v", l, p, h, set, want)
		}
	}
}
