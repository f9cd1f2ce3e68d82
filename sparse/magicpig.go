package sparse

import (
	"errors"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// MagicPIG (Chen et al., MagicPIG: LSH Sampling for Efficient LLM Generation,
// 2024): in decode, keys are sampled by locality-sensitive hashing. For each kv
// head of each layer:
//
//  1. Keys are taken from their mean over the prompt, which changes no softmax,
//     and each gets bits·tables signs of random projections.
//  2. Key i is sampled when all bits of a table are those of the query, in two
//     tables at least. That has the probability
//     w = 1 - (1-c)^(tables-1)·(tables·c + 1 - c), c = (1 - θ/π)^bits,
//     with θ the angle between query and key.
//  3. Attention over the first positions, the recent window and what is sampled,
//     with score q·k/√dim - ln(w + 1e-4) for what is sampled.
//
// The mean over projections of the sum of weighted exponentials is the sum over
// all positions, but for the 1e-4.
//
// Differences from the publication and its code:
//   - Positions are sorted by bucket, and those that came since are linked, the
//     newest first, until they are an eighth as many. Where the buckets of a query
//     are so full that reading them takes longer, all signs are compared, 64
//     positions at once, which is the definition and what find=codes always does:
//     what is sampled is the same.
//   - What is generated is hashed too, from the same mean, and sampled when it
//     leaves the recent window; the code reads all of it.
//   - Each layer has projections of its own.
//   - center=both takes the query from the mean, too, which changes angles and so
//     probabilities, and not what is estimated; center=none takes neither.
//   - least=one samples what collides in one table, with w = 1 - (1-c)^tables, as
//     sparse-attention-hub does; its augmentation of keys is not offered.
//
// Prompts are dense, or another system's.

// magicpigOptions are the settings of magicpig.
type magicpigOptions struct {
	Bits   int    `opt:"bits" unit:"signs" doc:"signs that a collision takes (the paper's K)"`
	Tables int    `opt:"tables" unit:"tables" doc:"groups of signs (the paper's L)"`
	Least  string `opt:"least" oneof:"two one" doc:"tables to collide in"`
	Find   string `opt:"find" oneof:"buckets codes" doc:"look into buckets, or compare all signs: the same is found, more slowly, in a third of the memory"`
	Sink   int    `opt:"sink" unit:"positions" doc:"first positions that are always read"`
	Local  int    `opt:"local" unit:"positions" doc:"newest positions that are always read, the row's own included"`
	Center string `opt:"center" oneof:"keys both none" doc:"what the mean key of the prompt is taken from"`
	Dense  int    `opt:"dense" unit:"layers" doc:"layers 0, dense, 2·dense and so on read everything; 0: no layer does"`
}

// maxPlanes bounds the signs of a key.
const maxPlanes = 1 << 14

func (o magicpigOptions) check() error {
	err := errors.Join(atLeast("bits", o.Bits, 1), atLeast("tables", o.Tables, 1),
		atLeast("sink", o.Sink, 0), atLeast("local", o.Local, 1), atLeast("dense", o.Dense, 0))
	if err == nil && (o.Bits > maxPlanes || o.Tables > maxPlanes || o.Bits*o.Tables > maxPlanes) {
		err = fmt.Errorf("options bits and tables: %d·%d signs, want at most %d", o.Bits, o.Tables, maxPlanes)
	}
	return err
}

var magicpigEntry = entry(Doc{
	Name: "magicpig", Title: "positions sampled by hashing, near the query more often",
	Source: "Chen et al., MagicPIG: LSH Sampling for Efficient LLM Generation, 2024, and its code",
	Stage:  Select, Decode: true, Draws: true,
	Granularity: "positions with weights, per query head",
	Reads:       "sink + local + sampled positions of K and V; to choose, a bucket of each table, about 2^-bits of the positions",
	Presets:     map[string]string{"k8-l75": "bits=8,tables=75", "k10-l150": "bits=10,tables=150"},
}, magicpigOptions{Bits: 10, Tables: 150, Least: "two", Find: "buckets", Sink: 4, Local: 64, Center: "keys", Dense: 16}, newMagicpig)

// magicpig holds the codes. Its tensors are of all layers and slots.
type magicpig struct {
	magicpigOptions
	hash device.Hash
	none device.Tensor // i32 [1]: zero
	list device.List   // a group for each slot
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
	return &magicpig{magicpigOptions: o, hash: h, none: env.Ints([]int32{0}, 1),
		list: env.List(env.Slots, env.Heads, env.MaxLen, true)}, nil
}

// normals is n numbers of the normal distribution for each layer.
func normals(seed uint64, layers, n int) []float32 {
	x := make([]float32, 0, layers*n)
	for l := range layers {
		d := rng.Address{Seed: seed, Layer: uint32(l), Purpose: rng.ForPlanes}
		for i := range uint32(n) {
			// Box and Muller: 1 - u is not zero.
			u, v := float64(d.Uniform(2*i)), float64(d.Uniform(2*i+1))
			x = append(x, float32(math.Sqrt(-2*math.Log(1-u))*math.Cos(2*math.Pi*v)))
		}
	}
	return x
}

// Name is "magicpig".
func (*magicpig) Name() string { return "magicpig" }

// Restart notes where the prompt ends: it has another mean.
func (m *magicpig) Restart(p *Pass, layer int) {
	device.Do(p.Queue, device.Copy{Dst: p.State(m.hash.Since, layer).Reshape(1), Src: p.End.Rows(p.Rows()-1, p.Rows())})
	device.Do(p.Queue, device.Copy{Dst: p.State(m.hash.Done, layer).Reshape(1), Src: m.none})
}

// Decode samples for each slot's row.
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
	list := plan
	list.Selected, list.List = device.None, device.List{}
	device.Do(p.Queue, device.Select{Rule: device.Collisions, List: plan.List, Hash: h, Q: q, KV: kv, Plan: list})
	return plan
}
