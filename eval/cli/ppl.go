package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/sparse"
)

const pplLong = `Measure the perplexity of a text under several attention methods, side by side.

--mode prefill scores all but the first half of each window in one prefill: it
shows what attention does to a prompt and says nothing about methods that work in
decode steps. --mode decode reads all but the last --steps tokens of a window and
then feeds the text token by token, as decode steps; methods that read prompts
alike have them read once.

gollm perplexity is the first of these for one method, as llama.cpp prints it.`

// pplFlags is what eval ppl can be told.
type pplFlags struct {
	model   openmodel.Flags
	text    openmodel.TextFlags
	kv      string
	attn    []string
	mode    string
	window  int
	steps   int
	windows int
	seed    uint64
	json    bool
}

func newPpl() *cobra.Command {
	var p pplFlags
	cmd := &cobra.Command{
		Use:     "ppl -m FILE -f TEXTFILE",
		Short:   "Compare the perplexity of a text under several attention methods",
		Long:    pplLong,
		Example: "  gollm eval ppl -m model.gguf -f book.txt --ctx 4096 --mode decode --attn dense --attn vattention",
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	f := cmd.Flags()
	p.model.RegisterPath(cmd)
	p.text.Register(cmd, "the text")
	f.StringArrayVar(&p.attn, "attn", []string{"dense"}, "attention method (repeatable); the first is what the others are compared with")
	f.StringVar(&p.mode, "mode", "prefill", "how the text is read: prefill or decode")
	f.IntVar(&p.window, "ctx", 2048, "tokens of a window")
	f.IntVar(&p.steps, "steps", 512, "decode: tokens of a window that are predicted in steps, below --ctx, to which the default is cut")
	f.IntVar(&p.windows, "windows", 0, "decode: at most so many windows (default: all)")
	f.Uint64Var(&p.seed, "attn-seed", 0, "seed of attention methods that draw")
	f.StringVar(&p.kv, "kv", "f16", "element type of the KV cache: f16 or f32")
	f.BoolVar(&p.json, "json", false, "print one JSON object for each method")
	p.model.RegisterRun(cmd)
	openmodel.CompleteAttn(cmd)
	usage.Complete(cmd, "mode", func() []string { return []string{"prefill", "decode"} })
	return cmd
}

// check reports what is wrong with the command line.
func (p *pplFlags) check(cmd *cobra.Command) error {
	for _, err := range []error{p.model.Check(), p.text.Check(cmd)} {
		if err != nil {
			return err
		}
	}
	if p.mode != "prefill" && p.mode != "decode" {
		return usage.Errorf("--mode %s, want prefill or decode", p.mode)
	}
	if p.window < 4 || p.window > openmodel.MaxContext {
		return usage.Errorf("--ctx %d, want windows of 4 to %d tokens", p.window, openmodel.MaxContext)
	}
	if err := p.checkSteps(cmd); err != nil {
		return err
	}
	for _, a := range p.attn {
		c := openmodel.CacheFlags{Attn: a, KV: p.kv}
		if err := c.Check(); err != nil {
			return err
		}
	}
	return nil
}

// checkSteps reports what is wrong with the flags of --mode decode.
func (p *pplFlags) checkSteps(cmd *cobra.Command) error {
	if p.mode == "prefill" {
		for _, name := range []string{"steps", "windows"} {
			if cmd.Flags().Changed(name) {
				return usage.Errorf("--%s is of --mode decode, and this is --mode prefill, which scores the second half of every window: leave it out, or add --mode decode", name)
			}
		}
		return nil
	}
	if p.steps < 1 || cmd.Flags().Changed("steps") && p.steps >= p.window {
		return usage.Errorf("--steps %d, want 1 to %d: a window has --ctx %d tokens, and the first is read before them", p.steps, p.window-1, p.window)
	}
	if p.windows < 0 {
		return usage.Errorf("--windows %d, want 0 (all) or more", p.windows)
	}
	return nil
}

// sayIdle names the methods that --mode prefill shows nothing of: without it their
// difference of 0 would read as that of a good method.
func (p *pplFlags) sayIdle(cmd *cobra.Command) error {
	dense, err := openmodel.ReadSpec("dense")
	if err != nil || p.mode != "prefill" {
		return err
	}
	for _, attn := range p.attn {
		spec, err := openmodel.ReadSpec(attn)
		if err != nil {
			return err
		}
		if spec.SamePrefill(dense) && !spec.Dense() {
			cmd.PrintErrf("note: %s reads prompts densely: has no effect in this mode; --mode decode shows it\n", spec)
		}
	}
	return nil
}

func (p *pplFlags) run(cmd *cobra.Command) error {
	if err := p.check(cmd); err != nil {
		return err
	}
	if err := p.sayIdle(cmd); err != nil {
		return err
	}
	m, ids, bos, err := openmodel.OpenWithText(cmd, &p.model, &p.text)
	if err != nil {
		return err
	}
	defer m.Close()
	groups, err := p.groups()
	if err != nil {
		return err
	}
	all := make([]pplReport, len(p.attn))
	for _, g := range groups {
		if err = p.measure(cmd, m, g, ids, bos, all); err != nil {
			break
		}
	}
	if err != nil && cmd.Context().Err() != nil {
		err = errors.Join(console.ErrInterrupted, err)
	}
	return errors.Join(p.print(cmd, compared(all)), err)
}

// compared is the reports that have something to say, with their differences to that of
// the first attention where they are of the same tokens.
func compared(all []pplReport) []pplReport {
	for i := range all {
		if i > 0 && all[i].Tokens == all[0].Tokens {
			all[i].Difference = all[i].NLL - all[0].NLL
		}
	}
	return slices.DeleteFunc(all, func(r pplReport) bool { return r.Tokens == 0 })
}

// groups is the numbers of the methods that are measured together: in decode steps
// those that read prompts alike, which have them read once.
func (p *pplFlags) groups() (groups [][]int, err error) {
	var specs []*sparse.Spec
	for i, attn := range p.attn {
		spec, err := openmodel.ReadSpec(attn)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
		at := slices.IndexFunc(groups, func(g []int) bool { return p.mode == "decode" && spec.SamePrefill(specs[g[0]]) })
		if at < 0 {
			groups = append(groups, []int{i})
		} else {
			groups[at] = append(groups[at], i)
		}
	}
	return groups, nil
}

// pplReport is the result of one attention.
type pplReport struct {
	Attn       string         `json:"attn"`
	Mode       string         `json:"mode"`
	Perplexity console.Number `json:"perplexity"`
	StdErr     console.Number `json:"std_err"`
	NLL        console.Number `json:"nll"`
	Difference console.Number `json:"nll_difference"` // to the first attention, on the same tokens
	Tokens     int            `json:"tokens"`
	Windows    int            `json:"windows"`
	Context    int            `json:"ctx"`
	Steps      int            `json:"steps,omitempty"`
	Shared     int            `json:"shared_prefill"` // methods that a window was read once for
	Complete   bool           `json:"complete"`
}

// measure scores the text under the methods of a group, into their reports.
func (p *pplFlags) measure(cmd *cobra.Command, m *openmodel.Model, g []int, ids []int32, bos int32, reports []pplReport) (err error) {
	var specs []*sparse.Spec
	for _, i := range g {
		spec, err := openmodel.ReadSpec(p.attn[i])
		if err != nil {
			return err
		}
		specs = append(specs, spec)
	}
	r, err := m.Runner(&openmodel.CacheFlags{Attn: p.attn[g[0]], KV: p.kv}, p.window, p.seed, specs[1:]...)
	if err != nil && len(g) > 1 {
		cmd.PrintErrf("gollm: prompts are read for each attention method by itself: %s\n", console.Message(err))
		for i := range g {
			if err := p.measure(cmd, m, g[i:i+1], ids, bos, reports); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	title := specs[0].String()
	if len(g) > 1 {
		title = fmt.Sprintf("%d attention methods", len(g))
	}
	wait := console.NewBar(cmd.ErrOrStderr(), m.Log, title, len(ids), " tok")
	defer wait.Stop()
	results, steps, err := p.perplexities(cmd.Context(), r, len(g), m.Model.Vocab, ids, bos, wait)
	for k, res := range results {
		reports[g[k]] = pplReport{
			Attn: specs[k].String(), Mode: p.mode, Perplexity: console.Number(res.Value), StdErr: console.Number(res.StdErr), NLL: console.Number(res.NLL()), Tokens: res.Tokens,
			Windows: res.Windows, Context: p.window, Steps: steps, Shared: len(g), Complete: res.Complete(),
		}
	}
	return err
}

// perplexities measures in the mode that was asked for; steps is 0 in a prefill.
func (p *pplFlags) perplexities(ctx context.Context, r *engine.Runner, policies, vocab int, ids []int32, bos int32, wait *console.Bar) (all []eval.Perplexity, steps int, err error) {
	if p.mode == "decode" {
		steps = min(p.steps, p.window-1)
		all, err = eval.MeasureTeacherForced(ctx, r, vocab, ids, eval.TeacherOptions{
			Context: p.window, Steps: steps, Windows: p.windows, BOS: bos, Policies: policies,
			Progress: func(done, total int, _ []eval.Perplexity) { wait.At(len(ids) * done / total) },
		})
		return all, steps, err
	}
	seq, err := r.Open()
	if err != nil {
		return nil, 0, err
	}
	defer seq.Close()
	one, err := eval.MeasurePerplexity(ctx, seq, ids, eval.PerplexityOptions{
		Context: p.window, BOS: bos, Progress: func(done, total int, _ eval.Perplexity) { wait.At(len(ids) * done / total) },
	})
	return []eval.Perplexity{one}, 0, err
}

func (p *pplFlags) print(cmd *cobra.Command, all []pplReport) error {
	if p.json {
		for _, r := range all {
			if err := console.WriteJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		return nil
	}
	columns := []string{"perplexity", "±", "nll", "difference", "tokens", "windows"}
	t := console.NewTable(columns...)
	t.AppendHeader(table.Row{"attention (" + p.mode + ")", columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]})
	for _, r := range all {
		t.AppendRow(table.Row{r.Attn, fmt.Sprintf("%.4f", r.Perplexity), fmt.Sprintf("%.4f", r.StdErr), fmt.Sprintf("%.4f", r.NLL),
			fmt.Sprintf("%+.4f", r.Difference), r.Tokens, r.Windows})
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Render())
	return err
}
