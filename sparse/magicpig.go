package sparse

import (
	"errors"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// MagicPIG: LSH Sampling for Efficient LLM Generation (Chen et al., 2024). A decode step
// samples keys by locality-sensitive hashing (SimHash). For each kv head of each layer:
//
//  1. Keys are centered at their mean over the prompt, which does not change the softmax,
//     and hashed: the sign bits of bits·tables random projections, bits for each table.
//  2. A key collides with the query in a table when all bits of the table are equal. Keys
//     that collide in at least two tables are sampled, which has the probability
//
//     w = 1 - (1-c)^(tables-1)·(tables·c + 1 - c),   c = (1 - θ/π)^bits
//
//     for an angle θ between query and key.
//  3. Attention over sinks, recent window and sampled positions, whose scores are
//     importance weighted: q·k/√dim - ln(w + 1e-4).
//
// The expectation of the weighted sum of exponentials is the sum over all positions, but
// for the 1e-4. Prefill is dense, or planned by another method.
//
// Differences from the publication and its code:
//   - A table's buckets are sorted arrays, and positions hashed since the last sort are
//     linked lists, newest first, up to an eighth as many; a GPU compares their bits. Where a query's buckets are so
//     full that reading them takes longer, the bits of all keys are compared, 64 positions
//     at once, which is the definition and what find=codes always does: the sample is the
//     same.
//   - Generated keys are hashed too, centered at the same mean, and sampled when they
//     leave the recent window; the code reads all of them.
//   - Each layer has its own projections.
//   - center=both centers the query too, which changes angles and so probabilities, and
//     not the expectation; center=none centers neither.
//   - least=one samples keys that collide in one table, with w = 1 - (1-c)^tables, as
//     sparse-attention-hub does; its augmentation of keys is not offered.

// magicpigOptions are the options of magicpig.
type magicpigOptions struct {
	Bits   int    `opt:"bits" unit:"sign bits" doc:"hash bits of a table (the paper's K)"`
	Tables int    `opt:"tables" unit:"tables" doc:"number of hash tables (the paper's L)"`
	Least  string `opt:"least" oneof:"two one" doc:"minimum number of tables to collide in"`
	Find   string `opt:"find" oneof:"buckets codes" doc:"look into buckets, or compare all hash bits: the same sample, more slowly, in a third of the memory"`
	Sink   int    `opt:"sink" unit:"positions" doc:"first positions that are always read"`
	Local  int    `opt:"local" unit:"positions" doc:"newest positions that are always read, the row's own included"`
	Center string `opt:"center" oneof:"keys both none" doc:"what is centered at the mean key of the prompt"`
	Dense  int    `opt:"dense" unit:"layers" doc:"layers 0, dense, 2·dense and so on are dense; 0: no layer is"`
}

// maxPlanes is the maximum hash bits of a key.
const maxPlanes = 1 << 14

func (o magicpigOptions) check() error {
	err := errors.Join(atLeast("bits", o.Bits, 1), atLeast("tables", o.Tables, 1),
		atLeast("sink", o.Sink, 0), atLeast("local", o.Local, 1), atLeast("dense", o.Dense, 0))
	if err == nil && (o.Bits > maxPlanes || o.Tables > maxPlanes || o.Bits*o.Tables > maxPlanes) {
		err = fmt.Errorf("options bits and tables: %d·%d sign bits, want at most %d", o.Bits, o.Tables, maxPlanes)
	}
	return err
}

var magicpigEntry = entry(Doc{
	Name: "magicpig", Title: "positions sampled by LSH, more often where the key is near the query",
	Source: "Chen et al., MagicPIG: LSH Sampling for Efficient LLM Generation, 2024, and its code",
	Stage:  Select, Decode: true, Draws: true,
	Granularity: "positions with weights, per query head",
	Reads:       "sink + local + sampled positions of K and V; to select, a bucket of each table, about 2^-bits of the positions",
	Presets:     map[string]string{"k8-l75": "bits=8,tables=75", "k10-l150": "bits=10,tables=150"},
}, magicpigOptions{Bits: 10, Tables: 150, Least: "two", Find: "buckets", Sink: 4, Local: 64, Center: "keys", Dense: 16}, newMagicpig)

// magicpig is the method's state; its tensors are of all layers and slots.
type magicpig struct {
	magicpigOptions
	hash device.Hash
	zero device.Tensor // i32 [1]: 0
	list device.List   // [slots, heads, positions], weighted
}

func newMagicpig(o magicpigOptions, env *Env) (Method, error) {
	planes := o.Bits * o.Tables
	h := device.Hash{
		Planes: env.Floats(normals(env.Seed, env.Layers, planes*env.HeadDim), env.Layers, planes, env.HeadDim),
		Codes:  env.Uncleared(device.I32, env.KVHeads*env.MaxBlocks(), 2*planes),
		Norm:   env.Uncleared(device.F32, env.KVHeads, env.MaxLen),
		Center: env.State(device.F32, env.KVHeads, env.HeadDim),
		Since:  env.State(device.I32, 1),
		Done:   env.State(device.I32, 1),
		Tables: o.Tables, MinCollisions: 2, Mean: o.Center != "none", Queries: o.Center == "both", Sink: o.Sink, Recent: o.Local,
	}
	if o.Least == "one" {
		h.MinCollisions = 1
	}
	if buckets := 1 << min(o.Bits, 30); o.Find == "buckets" && buckets <= device.MaxBuckets {
		runs := (env.MaxLen + device.HashRun - 1) / device.HashRun
		h.Sorted = env.State(device.I32, 1)
		h.Buckets = env.Uncleared(device.I32, env.KVHeads*runs, o.Tables*buckets)
		h.Members = env.Uncleared(device.I32, env.KVHeads*o.Tables, (env.MaxLen+1)/2)
	}
	return &magicpig{magicpigOptions: o, hash: h, zero: env.Ints([]int32{0}, 1),
		list: env.List(env.Slots, env.Heads, env.MaxLen, true)}, nil
}

// normals is n samples of the normal distribution for each layer, by Box and Muller.
func normals(seed uint64, layers, n int) []float32 {
	x := make([]float32, 0, layers*n)
	for l := range layers {
		d := rng.Address{Seed: seed, Layer: uint32(l), Purpose: rng.ForPlanes}
		for i := range uint32(n) {
			// 1 - u is never 0
			u, v := float64(d.Uniform(2*i)), float64(d.Uniform(2*i+1))
			x = append(x, float32(math.Sqrt(-2*math.Log(1-u))*math.Cos(2*math.Pi*v)))
		}
	}
	return x
}

// Name is "magicpig".
func (*magicpig) Name() string { return "magicpig" }

// Restart stores the end of the prompt and drops the hashes: its mean key is another.
func (m *magicpig) Restart(p *Pass, layer int) {
	device.Do(p.Queue, device.Copy{Dst: p.State(m.hash.Since, layer).Reshape(1), Src: p.End.Rows(p.Rows()-1, p.Rows())})
	device.Do(p.Queue, device.Copy{Dst: p.State(m.hash.Done, layer).Reshape(1), Src: m.zero})
}

// Decode hashes the new keys and lists the sampled positions (steps 1 to 3).
func (m *magicpig) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	if m.Dense > 0 && layer%m.Dense == 0 {
		return plan
	}
	kv, h := p.KV(layer), m.hash
	h.Planes = h.Planes.At(layer)
	for _, t := range []*device.Tensor{&h.Codes, &h.Norm, &h.Center, &h.Since, &h.Done, &h.Sorted, &h.Buckets, &h.Members} {
		if !t.Absent() {
			*t = p.State(*t, layer)
		}
	}
	plan.Sink, plan.Recent, plan.Selected = m.Sink, m.Local, device.Tokens
	plan.List = listRows(m.list, p.Rows())
	device.Do(p.Queue, device.Summarize{Rule: device.KeyHashes, Hash: h, KV: kv})
	forced := plan // sinks and window, which are read anyway
	forced.Selected, forced.List = device.None, device.List{}
	device.Do(p.Queue, device.Select{Rule: device.Collisions, List: plan.List, Hash: h, Q: q, KV: kv, Plan: forced})
	return plan
}
