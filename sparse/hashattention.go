package sparse

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/npy"
)

// HashAttention: Semantic Sparsity for Faster Inference (Desai et al., 2024). Positions
// are ranked by trained bit signatures.
//
//  1. For each query head, a small MLP maps a query to its signature, and another maps a
//     key: the sign bits of the last layer's outputs, 32 or so.
//  2. The signatures of the keys are stored beside their pages.
//  3. A decode step scores each position by the product of the two signatures as vectors
//     of ±1, which is the number of equal bits minus that of others, and reads the top k,
//     besides sinks and a recent window.
//
// The MLPs are trained for one model. They are read from a folder of .npy
// files, query.0.weight.npy [layers, heads, in, out], query.0.bias.npy [layers,
// heads, out], query.1.weight.npy and so on, and the same of key;
// docs/attention/hashattention.md says how to make it from published weights.
//
// Differences from the authors' code:
//   - Ties, which are frequent, go to the lowest positions.
//   - An output of exactly zero counts as negative; in the code it adds nothing.

// hashattentionOptions are the options of hashattention.
type hashattentionOptions struct {
	Dir        string        `opt:"dir" unit:"path" doc:"folder with the trained networks; needed"`
	Layout     string        `opt:"layout" oneof:"halves stored" doc:"channel order of the inputs: that of Hugging Face models, or of the cache"`
	Activation string        `opt:"activation" oneof:"silu relu" doc:"activation between the layers of the networks"`
	K          device.Amount `opt:"k" unit:"positions or share" doc:"positions selected besides sinks and window"`
	Sink       int           `opt:"sink" unit:"positions" doc:"first positions that are always read"`
	Window     int           `opt:"window" unit:"positions" doc:"newest positions that are always read, the row's own included"`
}

func (o hashattentionOptions) check() error {
	return errors.Join(atLeast("sink", o.Sink, 0), atLeast("window", o.Window, 1))
}

func (o hashattentionOptions) missing() error {
	if o.Dir == "" {
		return errors.New("it needs networks that were trained for the model: give dir=FOLDER with query.0.weight.npy and so on; docs/attention/hashattention.md says how to make it from published weights")
	}
	return nil
}

var hashattentionEntry = entry(Doc{
	Name: "hashattention", Title: "positions ranked by trained signatures (needs trained networks)",
	Source: "Desai et al., HashAttention: Semantic Sparsity for Faster Inference, 2024, and its code in sparse-attention-hub",
	Stage:  Select, Decode: true, Observes: true,
	Granularity: "positions, per query head",
	Reads:       "sink + k + window positions of K and V; to select, a signature of each position and query head",
}, hashattentionOptions{Layout: "halves", Activation: "silu", K: device.Amount{Share: 0.1}, Sink: 128, Window: 128}, newHashattention)

// hashattention is the method's state.
type hashattention struct {
	hashattentionOptions
	ranked
	query, key device.Net    // of all layers: weights [layers, head groups, out, in], biases [layers, head groups, out]
	signatures device.Tensor // i32 [pages, head groups, PageLen, words], beside each page
}

func newHashattention(o hashattentionOptions, env *Env) (Method, error) {
	if err := o.missing(); err != nil {
		return nil, err
	}
	m := &hashattention{hashattentionOptions: o}
	var err error
	if m.query, err = readNet(o, env, "query", env.Heads); err != nil {
		return nil, err
	}
	if m.key, err = readNet(o, env, "key", env.Heads, env.KVHeads); err != nil {
		return nil, err
	}
	if env.err != nil {
		return m, nil // reported by Build
	}
	q, k := layerNet(m.query, 0), layerNet(m.key, 0)
	if q.Bits() != k.Bits() {
		return nil, fmt.Errorf("option dir: %s: networks of %d bits for queries and %d for keys, want the same", o.Dir, q.Bits(), k.Bits())
	}
	m.signatures = env.PageState(device.I32, k.Weight[0].Dim(0), device.PageLen, k.Words())
	m.ranked = newRanked(env, false)
	return m, nil
}

// readNet reads the networks of queries or of keys; headGroups are the allowed numbers of
// networks of a layer.
func readNet(o hashattentionOptions, env *Env, name string, headGroups ...int) (device.Net, error) {
	n := device.Net{Relu: o.Activation == "relu"}
	in, layout := env.HeadDim, env.stored(o.Layout)
	for l := 0; ; l++ {
		file := filepath.Join(o.Dir, fmt.Sprintf("%s.%d.weight.npy", name, l))
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && l > 0 {
			return n, checkLast(o.Dir, name, l)
		}
		if l == device.MaxLayers {
			return n, fmt.Errorf("option dir: %s: a network of more than %d layers", file, device.MaxLayers)
		}
		w, err := readNumbers(file)
		if err != nil {
			return n, err
		}
		if s := w.Shape; len(s) != 4 || s[0] != env.Layers || !slices.Contains(headGroups, s[1]) || s[2] != in || s[3] < 1 {
			return n, fmt.Errorf("option dir: %s: an array of shape %v, want [%d layers, %d heads, %d, any]", file, s, env.Layers, headGroups[0], in)
		}
		headGroups = w.Shape[1:2]
		file = filepath.Join(o.Dir, fmt.Sprintf("%s.%d.bias.npy", name, l))
		b, err := readNumbers(file)
		if err != nil {
			return n, err
		}
		out := w.Shape[3]
		if !slices.Equal(b.Shape, []int{env.Layers, headGroups[0], out}) {
			return n, fmt.Errorf("option dir: %s: an array of shape %v, want [%d %d %d]", file, b.Shape, env.Layers, headGroups[0], out)
		}
		n.Weight[l] = env.Floats(transposed(w.Data, in, out, layout), env.Layers, headGroups[0], out, in)
		n.Bias[l] = env.Floats(b.Data, env.Layers, headGroups[0], out)
		in, layout = out, nil
	}
}

// readNumbers reads an array and refuses NaN and infinity.
func readNumbers(file string) (*npy.Array, error) {
	a, err := npy.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("option dir: %w", err)
	}
	if i := slices.IndexFunc(a.Data, func(v float32) bool { return v-v != 0 }); i >= 0 {
		return nil, fmt.Errorf("option dir: %s: element %d is %v, want numbers", file, i, a.Data[i])
	}
	return a, nil
}

// checkLast refuses files of a layer after the last one of a network with so many
// layers: a file of a layer before it is missing.
func checkLast(dir, name string, layers int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("option dir: %w", err)
	}
	for _, e := range entries {
		var l int
		var kind string
		if n, _ := fmt.Sscanf(e.Name(), name+".%d.%s", &l, &kind); n == 2 && l >= layers && (kind == "weight.npy" || kind == "bias.npy") {
			missing := fmt.Sprintf("%s.%d.weight.npy", name, layers)
			before := ""
			if l > layers {
				before = " before it"
			}
			return fmt.Errorf("option dir: %s: there is no %s%s; add it, or remove what is of another network", filepath.Join(dir, e.Name()), missing, before)
		}
	}
	return nil
}

// transposed transposes matrices [in, out] to [out, in]; row i of in becomes column
// layout[i], or i without a layout.
func transposed(x []float32, in, out int, layout []int) []float32 {
	y := make([]float32, len(x))
	for m := 0; m < len(x); m += in * out {
		for i := range in {
			to := i
			if layout != nil {
				to = layout[i]
			}
			for j := range out {
				y[m+j*in+to] = x[m+i*out+j]
			}
		}
	}
	return y
}

// layerNet is the networks of a layer.
func layerNet(n device.Net, layer int) device.Net {
	for i := range n.Layers() {
		n.Weight[i], n.Bias[i] = n.Weight[i].At(layer), n.Bias[i].At(layer)
	}
	return n
}

// Name is "hashattention".
func (*hashattention) Name() string { return "hashattention" }

// Observe stores the signatures of the new keys (steps 1 and 2).
func (m *hashattention) Observe(p *Pass, layer int, _, k device.Tensor) {
	device.Do(p.Queue, device.Summarize{
		Rule: device.KeySigns, Dst: m.signatures, X: k, Net: layerNet(m.key, layer), KV: p.KV(layer),
	})
}

// Decode scores signatures and lists the top k (step 3).
func (m *hashattention) Decode(p *Pass, layer int, q device.Tensor, plan device.Plan) device.Plan {
	kv := p.KV(layer)
	plan, scores := m.plan(p, plan, m.Sink, m.Window)
	device.Do(p.Queue, device.Score{
		Rule: device.SignScores, Dst: scores, Q: q, Keys: m.signatures, Net: layerNet(m.query, layer), KV: kv, Plan: plan,
	})
	device.Do(p.Queue, device.Select{Rule: device.TopK, List: plan.List, Scores: scores, KV: kv, K: m.K})
	return plan
}
