package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/npy"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/sparse"
)

const attendLong = `Run an attention method over queries, keys and values of your own, without a
model.

The tensors are .npy files of float32 or float16 in C order, all after RoPE:
q is [heads, n, d], k and v are [kv heads, n, d]. The result is float32, [heads,
rows, d].

--phase prefill (the default) computes the n positions as one prompt, in chunks
that end at multiples of 2048, as the engine does. --phase decode stores the
positions before the last --rows as a prompt and then computes the last --rows
one at a time, as new tokens. In both the result has the last --rows positions:
all of a prefill and one of a decode unless --rows says otherwise.

A method that carries something from layer to layer needs several layers. Give
q, k and v a first dimension of layers, [layers, heads, n, d], or name the files
of each layer with --layers-of Q,K,V, once for each layer, from the first layer
on. The result is then [layers, heads, rows, d]. Layers are counted from 0: a
method that leaves the first two dense does so here.

--indices writes {"attn": "sketchwalk", "phase": "prefill", "rows": [...]}, where
rows has one object for each layer, head and row:
  {"layer": 2, "head": 0, "row": 511, "keys": [0, 1, 480, 511]}
Here row is a position. "weights" is there where keys do not count 1 each, null
for one that is not finite; with "mixture": true the weights are the softmax
itself, and no keys are read. "frozen": true is a row that the layer does not
update.`

const attendExample = `  gollm attend --attn 'streaming(sink=4,window=256)' --q q.npy --k k.npy --v v.npy -o out.npy
  gollm attend --attn 'topk(k=64)' --q q.npy --k k.npy --v v.npy -o out.npy --phase decode --rows 16
  gollm attend --attn sketchwalk --layers-of q0.npy,k0.npy,v0.npy --layers-of q1.npy,k1.npy,v1.npy \
      --layers-of q2.npy,k2.npy,v2.npy -o out.npy --indices idx.json --audit audit.html`

// attendFlags is what attend can be told.
type attendFlags struct {
	attn    string
	q, k, v string
	layers  []string
	out     string
	phase   string
	rows    int
	indices string
	audit   []string
	seed    uint64
	kv      string
	model   openmodel.Flags // the device only
}

func newAttend() *cobra.Command {
	var a attendFlags
	cmd := &cobra.Command{
		Use:     "attend --attn SPEC --q FILE --k FILE --v FILE -o FILE",
		Short:   "Run an attention method over tensors of your own",
		Long:    attendLong,
		Example: attendExample,
		GroupID: groupLook,
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&a.attn, "attn", "dense", openmodel.AttnUsage)
	f.StringVar(&a.q, "q", "", "queries, .npy [heads, n, d] or [layers, heads, n, d]")
	f.StringVar(&a.k, "k", "", "keys, .npy [kv heads, n, d], with layers where q has them")
	f.StringVar(&a.v, "v", "", "values, like the keys")
	f.StringArrayVar(&a.layers, "layers-of", nil, "the `Q,K,V` files of a layer, instead of --q, --k and --v (repeatable, in order)")
	f.StringVarP(&a.out, "out", "o", "", "where the result goes, .npy (required)")
	f.StringVar(&a.phase, "phase", "prefill", "prefill, or decode: the last rows one at a time")
	f.IntVar(&a.rows, "rows", 0, "the last so many positions are the result; 0, the default, is all of a prefill and one of a decode")
	f.StringVar(&a.indices, "indices", "", "write what each row read to this .json file")
	f.StringArrayVar(&a.audit, "audit", nil, "compare with dense attention and write to this .json or .html file (repeatable)")
	f.Uint64Var(&a.seed, "seed", 0, "of what the method draws at random")
	f.StringVar(&a.kv, "kv", "f32", "element type of the KV cache: f16 or f32")
	a.model.RegisterDevice(cmd)
	for _, name := range []string{"q", "k", "v", "out"} {
		_ = cmd.MarkFlagFilename(name, "npy") // fails only for a flag that does not exist
	}
	openmodel.CompleteAttn(cmd)
	usage.Complete(cmd, "phase", func() []string { return []string{"prefill", "decode"} })
	return cmd
}

// check reports what is wrong with the command line.
func (a *attendFlags) check() error {
	single := a.q != "" || a.k != "" || a.v != ""
	switch {
	case single && len(a.layers) > 0:
		return usage.Errorf("both --layers-of and --q, --k, --v: tensors come from one of them")
	case len(a.layers) == 0 && (a.q == "" || a.k == "" || a.v == ""):
		return usage.Errorf("not all tensors are named: want --q, --k and --v, or --layers-of Q,K,V")
	case a.out == "":
		return usage.Errorf("no place for the result: name a file with -o FILE.npy")
	case a.phase != "prefill" && a.phase != "decode":
		return usage.Errorf("--phase %s, want prefill or decode", a.phase)
	case a.rows < 0:
		return usage.Errorf("--rows %d, want 1 or more, or 0 for all of a prefill and one of a decode", a.rows)
	}
	for _, triple := range a.layers {
		if len(strings.Split(triple, ",")) != 3 {
			return usage.Errorf("--layers-of %s, want three files: Q,K,V", triple)
		}
	}
	if err := a.model.CheckDevice(); err != nil {
		return err
	}
	if ext := filepath.Ext(a.out); ext != ".npy" && ext != "" {
		return usage.Errorf("-o %s: the result is written as .npy", a.out)
	}
	if err := checkAuditFiles(a.audit); err != nil {
		return err
	}
	return a.checkOutputs()
}

// checkOutputs is [userfile.CheckOutputs] for the files of the flags.
func (a *attendFlags) checkOutputs() error {
	inputs := append((&openmodel.CacheFlags{Attn: a.attn}).Files(), userfile.Named{Flag: "--q", Path: a.q}, userfile.Named{Flag: "--k", Path: a.k}, userfile.Named{Flag: "--v", Path: a.v})
	for _, triple := range a.layers {
		for path := range strings.SplitSeq(triple, ",") {
			inputs = append(inputs, userfile.Named{Flag: "--layers-of", Path: path})
		}
	}
	outputs := []userfile.Named{{Flag: "-o", Path: a.out}, {Flag: "--indices", Path: a.indices}}
	for _, path := range a.audit {
		outputs = append(outputs, userfile.Named{Flag: "--audit", Path: path})
	}
	return userfile.CheckOutputs(inputs, outputs...)
}

func (a *attendFlags) run(cmd *cobra.Command) error {
	if err := a.check(); err != nil {
		return err
	}
	cache := openmodel.CacheFlags{Attn: a.attn, KV: a.kv}
	a.model.WarnThreads(cmd)
	spec, err := cache.Spec()
	if err != nil {
		return err
	}
	if err := checkPhase(spec, a.phase); err != nil {
		return err
	}
	kv, err := cache.DType()
	if err != nil {
		return err
	}
	t, err := a.load()
	if err != nil {
		return err
	}
	if a.rows == 0 {
		a.rows = 1
		if a.phase == "prefill" {
			a.rows = t.n
		}
	}
	if a.rows > t.n {
		return fmt.Errorf("--rows %d, but the tensors have %d positions", a.rows, t.n)
	}
	where, err := openmodel.ParseDevice(a.model.Device)
	if err != nil {
		return err
	}
	dev, err := where.Open(cmd, a.model.Threads, 0)
	if err != nil {
		return err
	}
	defer dev.Close()
	return a.attend(cmd, dev, spec, kv, t)
}

// checkPhase refuses an attention that has no method for the phase: what would
// be run is dense attention, under the name of a method that did nothing.
func checkPhase(spec *sparse.Spec, phase string) error {
	prefill, decode := spec.Phases()
	switch {
	case phase == "prefill" && !prefill:
		return usage.Errorf("--phase prefill: %s works in decode only, and the result would be dense; use --phase decode, or name a method for prompts too: --attn 'prefill=NAME decode=%s'", spec, spec)
	case phase == "decode" && !decode:
		return usage.Errorf("--phase decode: %s works in prefill only, and the result would be dense; use --phase prefill, or name a method for new tokens too: --attn 'prefill=%s decode=NAME'", spec, spec)
	}
	return nil
}

// attend runs the replay and writes what was asked for.
func (a *attendFlags) attend(cmd *cobra.Command, dev device.Device, spec *sparse.Spec, kv device.DType, t *tensors) error {
	out, err := userfile.Create("-o", a.out) // before what may take minutes
	if err != nil {
		return err
	}
	defer out.Drop()
	audits, err := openAudit(a.audit)
	if err != nil {
		return err
	}
	defer audits.drop()
	r, err := engine.NewReplay(dev, spec, engine.ReplayConfig{
		Layers: len(t.layers), Heads: t.heads, KVHeads: t.kvHeads, HeadDim: t.dim, MaxLen: t.n, KV: kv, Seed: a.seed,
	})
	if err != nil {
		return err
	}
	defer r.Close()
	watch := r.Time()
	var audit *engine.Audit
	if len(a.audit) > 0 {
		// Rows of a prefill are sampled: dense attention for all would take longer
		// than a dense prefill.
		if audit, err = r.Audit(engine.AuditConfig{Rows: 64}); err != nil {
			return err
		}
	}
	seq, err := r.Open(t.layers)
	if err != nil {
		return err
	}
	wait := console.NewBar(cmd.ErrOrStderr(), console.Logger(cmd), "attending", t.n, " positions")
	defer wait.Stop()
	start := time.Now()
	if err := a.replay(r, seq, t, wait); err != nil {
		return err
	}
	took := time.Since(start)
	wait.Stop()
	broken, err := a.writeOut(out, seq, t)
	if err != nil {
		return err
	}
	cmd.PrintErr(broken.text("numbers of the result", "a query, a key or a value is broken, and the output is not to be trusted"))
	if audit != nil {
		report := eval.Audit{Device: dev.Info().Name, AuditReport: audit.Report()}
		if _, err := fmt.Fprint(cmd.ErrOrStderr(), auditTable(report)); err != nil {
			return err
		}
		if err := audits.write(report); err != nil {
			return err
		}
	}
	times := watch.Prefill
	if a.phase == "decode" {
		times = watch.Decode
	}
	if r.Policy().String() != "dense" && times.Sparse == 0 {
		cmd.PrintErrf("the result is that of dense attention: %s left nothing out in %s; name more layers with --layers-of, or other options\n",
			r.Policy(), console.Plural(len(t.layers), "layer"))
	}
	note := ""
	if audit == nil { // which is timed too
		note = fmt.Sprintf("; %s took %s to select and %s to attend", a.phase, console.TimeText(times.Select), console.TimeText(times.Attend))
	}
	cmd.PrintErrf("%s: %s, %s, %s of %d in %s%s\n",
		console.OneLine(a.out), r.Policy(), console.Plural(len(t.layers), "layer"), console.Plural(a.rows, "row"), t.n, console.TimeText(took), note)
	if audit != nil { // which has told
		return nil
	}
	nans, err := r.NaNScores()
	cmd.PrintErr(nanText(nans))
	return err
}

// replay runs the positions in the phase asked for.
func (a *attendFlags) replay(r *engine.Replay, seq *engine.ReplaySequence, t *tensors, wait *console.Bar) error {
	idx, err := newIndexFile(a.indices, r.Policy().String(), a.phase)
	if err != nil {
		return err
	}
	if idx != nil {
		first, decode := t.n-a.rows, a.phase == "decode"
		r.Observe = func(s engine.Selection) { idx.add(s, first, decode) }
		r.ObserveFrozen = func(layer, from, to int) {
			if !decode {
				idx.addFrozen(layer, max(from, first), to, t.heads)
			}
		}
	}
	prompt := t.n
	if a.phase == "decode" {
		prompt = t.n - a.rows
	}
	if prompt > 0 {
		err = seq.Prefill(prompt, 0)
	}
	for err == nil && seq.More() {
		wait.At(seq.Len())
		err = r.Step(seq)
	}
	if idx != nil {
		err = idx.finish(err)
	}
	return err
}

// writeOut writes the last rows of every layer.
func (a *attendFlags) writeOut(f *userfile.Out, seq *engine.ReplaySequence, t *tensors) (broken brokenCount, err error) {
	out := npy.Array{Shape: []int{t.heads, a.rows, t.dim}}
	if t.layered {
		out.Shape = append([]int{len(t.layers)}, out.Shape...)
	}
	for l := range t.layers {
		y := seq.Output(l)
		for h := range t.heads {
			out.Data = append(out.Data, y[(h*t.n+t.n-a.rows)*t.dim:(h+1)*t.n*t.dim]...)
		}
	}
	broken.add(out.Data)
	if err := f.Finish(npy.Write(f, &out)); err != nil {
		return broken, fmt.Errorf("%s: %w", a.out, err)
	}
	return broken, nil
}
