package sparse

import (
	"errors"

	"github.com/gollm/gollm/device"
)

// CPE: Near-Oracle KV Selection via Pre-hoc Sparsity. It composes three methods:
//
//  1. etf: the rows of a prompt that a layer updates (stage rows);
//  2. psaw: the part of the past that a layer sees, in prefill and in decode (stage
//     window);
//  3. cis: the positions of that part that a head reads in decode (stage select).
//
// In decode the window of psaw is applied before cis selects, so that k positions remain,
// and to selections that are reused; sinks and recent window are always visible. All
// three use one option sink, psaw and etf one ls.

// cpeOptions are the options of the three methods.
type cpeOptions struct {
	cisOptions
	LS    device.Amount `opt:"ls" unit:"layers or share of them" doc:"layer, counted from 1, after which windows close and positions freeze"`
	Phi   float64       `opt:"phi" unit:"share" doc:"part of the past that the last layer sees; 1 is everything"`
	Alpha float64       `opt:"alpha" doc:"exponent that bends how the window closes with depth"`
	Psi   float64       `opt:"psi" unit:"share" doc:"part of a prompt that the last layer updates; 1 is everything"`
	Gamma float64       `opt:"gamma" doc:"exponent that bends how freezing grows with depth"`
	ETF   string        `opt:"etf" oneof:"hidden kv" doc:"keys and values of frozen positions: from the frozen hidden state, or those of the layer below"`
	MLP   string        `opt:"etf_mlp" oneof:"skip run" doc:"feed-forward half of frozen positions"`
}

func (o cpeOptions) check() error {
	return errors.Join(o.cisOptions.check(), o.psaw().check(), o.etf().check())
}

// psaw is the options of psaw.
func (o cpeOptions) psaw() psawOptions {
	return psawOptions{Phi: o.Phi, Alpha: o.Alpha, LS: o.LS, Sink: o.Sink}
}

// etf is the options of etf.
func (o cpeOptions) etf() etfOptions {
	return etfOptions{Psi: o.Psi, Gamma: o.Gamma, LS: o.LS, Sink: o.Sink, ETF: o.ETF, MLP: o.MLP}
}

var cpeEntry = combination(Doc{
	Name: "cpe", Title: "etf, psaw and cis combined",
	Source: "Near-Oracle KV Selection via Pre-hoc Sparsity (CPE)",
	Stage:  Select, Prefill: true, Decode: true,
	Granularity: "rows of a prompt, a range for each layer, positions for each head",
	Reads:       "as etf and psaw in prefill, as psaw and cis in decode",
	Presets:     cisPresets,
}, cpeOptions{
	cisOptions: cisDefaults, LS: device.Amount{Share: 0.75}, Phi: 0.7, Alpha: 1, Psi: 0.5, Gamma: 1, ETF: "hidden", MLP: "skip",
}, func(o cpeOptions) []item {
	return []item{
		{entry: &etfEntry, opts: o.etf()},
		{entry: &psawEntry, opts: o.psaw()},
		{entry: &cisEntry, opts: o.cisOptions},
	}
})
