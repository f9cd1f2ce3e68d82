package sparse

import (
	"errors"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// ETF: the early token freezing of CPE (Near-Oracle KV Selection via Pre-hoc Sparsity).
// In the prefill of a prompt of Lp positions, the layers after ls no longer update a
// growing part of its beginning. With layers l = 1..N
//
//	x = (l - ls) / (N - ls)    E_l = floor((1 - psi^(gamma·x))·Lp)
//
// positions sink <= i < E_l are frozen in layer l: they have no query, attention or
// feed-forward. E_l never decreases with l, so a frozen position stays frozen, and the
// last position of a prompt never is.
//
// Where the paper contradicts itself or is silent:
//   - etf=hidden is its text: a layer projects the keys and values of frozen positions
//     from their frozen hidden state. etf=kv is its appendix: they are those of the layer
//     below, whose whole pages are shared instead of stored; a frozen position in a page
//     that is only partly frozen is projected.
//   - "Not updated" includes the feed-forward half; etf_mlp=run runs it.
//   - Lp includes the cached prefix. E_l follows from the whole length, and only
//     positions of the new part can be frozen. Keys and values of deep layers depend on
//     Lp, so a prompt of another length cannot share them as its prefix.

// etfOptions are the options of etf.
type etfOptions struct {
	Psi   float64       `opt:"psi" unit:"share" doc:"part of a prompt that the last layer updates; 1 is everything"`
	Gamma float64       `opt:"gamma" doc:"exponent that bends how freezing grows with depth"`
	LS    device.Amount `opt:"ls" unit:"layers or share of them" doc:"layer, counted from 1, after which positions freeze"`
	Sink  int           `opt:"sink" unit:"positions" doc:"first positions that are never frozen"`
	ETF   string        `opt:"etf" oneof:"hidden kv" doc:"keys and values of frozen positions: from the frozen hidden state, or those of the layer below"`
	MLP   string        `opt:"etf_mlp" oneof:"skip run" doc:"feed-forward half of frozen positions"`
}

func (o etfOptions) check() error {
	err := errors.Join(notNegative("gamma", o.Gamma), atLeast("sink", o.Sink, 0))
	if !(o.Psi > 0 && o.Psi <= 1) {
		err = errors.Join(err, fmt.Errorf("option psi: %v, want above 0 and at most 1", o.Psi))
	}
	return err
}

// reach: the length of a prompt says which of its positions are frozen, in whole pages.
func (o etfOptions) reach() (unit int, end bool) { return device.PageLen, true }

var etfEntry = entry(Doc{
	Name: "etf", Title: "positions of a prompt that deep layers no longer update",
	Source: "Near-Oracle KV Selection via Pre-hoc Sparsity (CPE), its early token freezing",
	Stage:  Rows, Prefill: true,
	Granularity: "whole rows of the residual stream",
	Reads:       "no query, attention or feed-forward for 1 - psi^(gamma·x) of a prompt in the layers after ls; with etf=kv no keys and values either",
}, etfOptions{Psi: 0.5, Gamma: 1, LS: device.Amount{Share: 0.75}, Sink: 16, ETF: "hidden", MLP: "skip"}, newETF)

// etf is the schedule: freezing grows from layer from, counted from 1, to the last.
type etf struct {
	etfOptions
	layers, from int
}

func newETF(o etfOptions, env *Env) (Method, error) {
	from, err := startLayer(o.LS, env.Layers)
	return &etf{etfOptions: o, layers: env.Layers, from: from}, err
}

// Name is "etf".
func (*etf) Name() string { return "etf" }

// Frozen is positions [sink, E_l).
func (e *etf) Frozen(layer, prompt int) Freeze {
	share := dropped(e.Psi, e.Gamma, depth(layer, e.from, e.layers))
	to := min(int(math.Floor(share*float64(prompt)+1e-9)), prompt-1)
	return Freeze{From: e.Sink, To: max(to, e.Sink), Feed: e.MLP == "run", Alias: e.ETF == "kv"}
}
