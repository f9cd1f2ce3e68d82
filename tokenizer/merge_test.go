package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// mergeSlowly is the definition of merging, on a plain slice: of the pairs of lowest
// rank the leftmost becomes one symbol, until there is none.
func mergeSlowly(t *pairTable, ids []int32) []int32 {
	for {
		best, bestRank, bestID := -1, int32(0), int32(0)
		for i := 0; i+1 < len(ids); i++ {
			rank, id := t.find(ids[i], ids[i+1])
			if rank != noRank && (best < 0 || rank < bestRank) {
				best, bestRank, bestID = i, rank, id
			}
		}
		if best < 0 {
			return ids
		}
		ids = slices.Replace(slices.Clone(ids), best, best+2, bestID)
	}
}

// randomPairs makes merges of few symbols with many equal ranks.
func randomPairs(rng *rand.Rand, symbols int32, n int) pairTable {
	t := newPairTable(n)
	for range n {
		t.add(pair{rng.Int32N(symbols), rng.Int32N(symbols), rng.Int32N(6), rng.Int32N(symbols)})
	}
	return t
}

// TestMerge checks both merge loops against the definition.
func TestMerge(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		table := randomPairs(rng, 8, 12)
		ids := make([]int32, rng.IntN(4*scanLimit))
		for i := range ids {
			ids[i] = rng.Int32N(9) - 1 // -1 merges with nothing
		}
		want := mergeSlowly(&table, ids)
		for _, run := range []func(*merger){(*merger).runScan, (*merger).runHeap} {
			if got := merged(&table, ids, run); !slices.Equal(got, want) {
				t.Fatalf("%v: got %v, want %v", ids, got, want)
			}
		}
	}
}

// merged runs one merge loop over ids.
func merged(table *pairTable, ids []int32, run func(*merger)) (out []int32) {
	if len(ids) == 0 {
		return ids
	}
	m := merger{pairs: table}
	for _, id := range ids {
		m.push(id)
	}
	m.begin()
	run(&m)
	for i := int32(0); i >= 0; i = m.syms[i].next {
		out = append(out, m.syms[i].id)
	}
	return out
}

// TestPairTable checks that a table holds what was added first.
func TestPairTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	table := newPairTable(500)
	want := map[[2]int32]pair{}
	for i := range int32(500) {
		p := pair{rng.Int32N(30), rng.Int32N(30), i, 2 * i}
		if _, ok := want[[2]int32{p.left, p.right}]; !ok {
			want[[2]int32{p.left, p.right}] = p
		}
		table.add(p)
	}
	for l := range int32(32) {
		for r := range int32(32) {
			rank, id := table.find(l, r)
			p, ok := want[[2]int32{l, r}]
			if !ok && rank != noRank || ok && (rank != p.rank || id != p.id) {
				t.Errorf("%d %d: got %d %d, want %+v", l, r, rank, id, p)
			}
		}
	}
}

// TestPairsThatCollide adds pairs whose numbers, times the golden ratio that tables are
// commonly hashed with, begin with the same bits. Each lies near its slot all the same: a
// file cannot know the numbers of a table.
func TestPairsThatCollide(t *testing.T) {
	const n, most = 20_000, 500 // chance puts no pair farther than some dozens of slots off
	var pairs []pair
	for left := int32(0); len(pairs) < n; left++ {
		for right := range int32(1 << 12) {
			if (uint64(left)<<32|uint64(right))*0x9E3779B97F4A7C15>>56 == 7 {
				pairs = append(pairs, pair{left: left, right: right})
			}
		}
	}
	table := newPairTable(len(pairs))
	for _, p := range pairs {
		table.add(p)
	}
	mask := len(table.slots) - 1
	for i, p := range table.slots {
		if p.left == noSymbol {
			continue
		}
		if off := (i - int(table.slot(p.left, p.right))) & mask; off > most {
			t.Fatalf("a pair is %d slots from its own, want at most %d", off, most)
		}
	}
}
