package sparse

import (
	"errors"
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
)

// PSAW: the progressive sliding attention window of CPE (Near-Oracle KV Selection via
// Pre-hoc Sparsity). From layer ls on, a deeper layer sees less of the past. With layers
// l = 1..N and the row at position t = 1, 2, ...
//
//	x = (l - ls) / (N - ls)    P_l(t) = floor((1 - phi^(alpha·x))·t)
//
// the row sees the first sink positions and those from P_l(t) on. In positions
// from 0, as [device.Span] counts: j < sink or j >= P_l(p+1) - 1. The window depends on
// the row's position only, so results do not depend on prefill chunks. The paper does not
// give the number of sinks; the default is that of CIS.

// psawOptions are the options of psaw.
type psawOptions struct {
	Phi   float64       `opt:"phi" unit:"share" doc:"part of the past that the last layer sees; 1 is everything"`
	Alpha float64       `opt:"alpha" doc:"exponent that bends how the window closes with depth"`
	LS    device.Amount `opt:"ls" unit:"layers or share of them" doc:"layer, counted from 1, after which windows close"`
	Sink  int           `opt:"sink" unit:"positions" doc:"first positions that every layer sees"`
}

func (o psawOptions) check() error {
	return errors.Join(inUnit("phi", o.Phi), notNegative("alpha", o.Alpha), atLeast("sink", o.Sink, 0))
}

// inUnit checks an option that is a share.
func inUnit(name string, x float64) error {
	if !(x >= 0 && x <= 1) {
		return fmt.Errorf("option %s: %v, want 0 to 1", name, x)
	}
	return nil
}

// notNegative checks an option that is a finite number.
func notNegative(name string, x float64) error {
	if !(x >= 0) || math.IsInf(x, 1) {
		return fmt.Errorf("option %s: %v, want a number of at least 0", name, x)
	}
	return nil
}

var psawEntry = entry(Doc{
	Name: "psaw", Title: "a window that closes with depth",
	Source: "Near-Oracle KV Selection via Pre-hoc Sparsity (CPE), its sliding attention window",
	Stage:  Window, Prefill: true, Decode: true,
	Granularity: "one range and the sinks, the same for all heads",
	Reads:       "phi^(alpha·x) of K and V in the layers after ls, x growing from 0 to 1; selection is free",
}, psawOptions{Phi: 0.7, Alpha: 1, LS: device.Amount{Share: 0.75}, Sink: 16}, newPSAW)

// psaw is the schedule: the window closes from layer from, counted from 1, to the last.
type psaw struct {
	psawOptions
	layers, from int
}

func newPSAW(o psawOptions, env *Env) (Method, error) {
	from, err := startLayer(o.LS, env.Layers)
	return &psaw{psawOptions: o, layers: env.Layers, from: from}, err
}

// startLayer is the paper's ls, counted from 1, for a model of so many layers.
func startLayer(ls device.Amount, layers int) (int, error) {
	n := ls.Of(layers)
	if n > layers {
		return 0, fmt.Errorf("option ls: %d, the model has %d layers", n, layers)
	}
	return n, nil
}

// Name is "psaw".
func (*psaw) Name() string { return "psaw" }

// Span is the window of a layer, counted from 0.
func (w *psaw) Span(layer int) device.Span {
	drop := dropped(w.Phi, w.Alpha, depth(layer, w.from, w.layers))
	if drop == 0 {
		return device.Span{}
	}
	return device.Span{Sink: w.Sink, Drop: drop}
}

// depth is the paper's x of a layer counted from 0: 0 up to layer from, counted from 1,
// and 1 at the last.
func depth(layer, from, layers int) float64 {
	if l := layer + 1; l > from {
		return float64(l-from) / float64(layers-from)
	}
	return 0
}

// dropped is 1 - keep^(bend·x).
func dropped(keep, bend, x float64) float64 { return 1 - math.Pow(keep, bend*x) }
