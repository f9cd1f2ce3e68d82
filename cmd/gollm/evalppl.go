package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval"
)

const evalPplLong = `Measure the perplexity of a text under several attention systems, side by side.

--mode prefill scores all but the first half of each window in one prefill: it
shows what attention does to a prompt and says nothing about systems that work in
decode steps. --mode decode reads all but the last --steps tokens of a window and
then feeds the text token by token, as decode steps.

gollm perplexity is the first of these for one system, as llama.cpp prints it.`

// evalPplFlags is what eval ppl can be told.
type evalPplFlags struct {
	model   modelFlags
	text    textFlags
	kv      string
	attn    []string
	mode    string
	window  int
	steps   int
	windows int
	seed    uint64
	json    bool
}

func newEvalPpl() *cobra.Command {
	var p evalPplFlags
	cmd := &cobra.Command{
		Use:     "ppl -m FILE -f TEXTFILE",
		Short:   "Compare the perplexity of a text under several attention systems",
		Long:    evalPplLong,
		Example: "  gollm eval ppl -m model.gguf -f book.txt --ctx 4096 --mode decode --attn dense --attn vattention",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	f := cmd.Flags()
	p.model.registerPath(cmd)
	p.text.register(cmd, "the text")
	f.StringArrayVar(&p.attn, "attn", []string{"dense"}, "attention system (repeatable); the first is what the others are compared with")
	f.StringVar(&p.mode, "mode", "prefill", "how the text is read: prefill or decode")
	f.IntVar(&p.window, "ctx", 2048, "tokens of a window")
	f.IntVar(&p.steps, "steps", 512, "decode: tokens of a window that are predicted in steps")
	f.IntVar(&p.windows, "windows", 0, "decode: at most so many windows (default: all)")
	f.Uint64Var(&p.seed, "attn-seed", 0, "seed of attention systems that draw")
	f.StringVar(&p.kv, "kv", "f16", "element type of the KV cache: f16 or f32")
	f.BoolVar(&p.json, "json", false, "print one JSON object for each system")
	p.model.registerDevice(cmd)
	completeAttn(cmd)
	completeWith(cmd, "mode", func() []string { return []string{"prefill", "decode"} })
	return cmd
}

// check reports what is wrong with the command line.
func (p *evalPplFlags) check(cmd *cobra.Command) error {
	for _, err := range []error{p.model.check(), p.text.check(cmd)} {
		if err != nil {
			return err
		}
	}
	if p.mode != "prefill" && p.mode != "decode" {
		return usagef("--mode %s, want prefill or decode", p.mode)
	}
	if p.window < 4 || p.window > maxContext || p.steps < 1 || p.windows < 0 {
		return usagef("--ctx %d --steps %d --windows %d, want windows of 4 tokens or more and a step at least", p.window, p.steps, p.windows)
	}
	for _, a := range p.attn {
		c := cacheFlags{attn: a, kv: p.kv}
		if err := c.check(); err != nil {
			return err
		}
	}
	return nil
}

func (p *evalPplFlags) run(cmd *cobra.Command) error {
	if err := p.check(cmd); err != nil {
		return err
	}
	m, ids, bos, err := openWithText(cmd, &p.model, &p.text)
	if err != nil {
		return err
	}
	defer m.Close()
	ctx := cmd.Context()
	var all []pplReport
	for _, attn := range p.attn {
		r, err := p.measure(ctx, cmd, m, attn, ids, bos)
		if r.Tokens > 0 {
			if len(all) > 0 && all[0].Tokens == r.Tokens {
				r.Difference = r.NLL - all[0].NLL
			}
			all = append(all, r)
		}
		if err != nil {
			if ctx.Err() != nil {
				err = errors.Join(errInterrupted, err)
			}
			return errors.Join(p.print(cmd, all), err)
		}
	}
	return p.print(cmd, all)
}

// pplReport is the result of one attention.
type pplReport struct {
	Attn       string  `json:"attn"`
	Mode       string  `json:"mode"`
	Perplexity float64 `json:"perplexity"`
	StdErr     float64 `json:"std_err"`
	NLL        float64 `json:"nll"`
	Difference float64 `json:"nll_difference"` // to the first attention, on the same tokens
	Tokens     int     `json:"tokens"`
	Windows    int     `json:"windows"`
	Context    int     `json:"ctx"`
	Steps      int     `json:"steps,omitempty"`
	Complete   bool    `json:"complete"`
}

// measure scores the text under one attention.
func (p *evalPplFlags) measure(ctx context.Context, cmd *cobra.Command, m *openModel, attn string, ids []int32, bos int32) (rep pplReport, err error) {
	r, err := m.runner(&cacheFlags{attn: attn, kv: p.kv}, p.window, p.seed)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	wait := newBar(cmd.ErrOrStderr(), m.log, r.Attn(), len(ids), " tok")
	defer wait.stop()
	progress := func(done, total int, _ eval.Perplexity) { wait.at(len(ids) * done / total) }
	var res eval.Perplexity
	steps := 0
	if p.mode == "decode" {
		steps = min(p.steps, p.window-1)
		res, err = eval.MeasureTeacherForced(ctx, r, m.Model.Vocab, ids,
			eval.TeacherOptions{Context: p.window, Steps: steps, Windows: p.windows, BOS: bos, Progress: progress})
	} else {
		seq, openErr := r.Open()
		if openErr != nil {
			return rep, openErr
		}
		res, err = eval.MeasurePerplexity(ctx, seq, ids, eval.PerplexityOptions{Context: p.window, BOS: bos, Progress: progress})
		seq.Close()
	}
	rep = pplReport{
		Attn: r.Attn(), Mode: p.mode, Perplexity: res.Value, StdErr: res.StdErr, NLL: res.NLL(), Tokens: res.Tokens,
		Windows: res.Windows, Context: p.window, Steps: steps, Complete: res.Complete(),
	}
	return rep, err
}

func (p *evalPplFlags) print(cmd *cobra.Command, all []pplReport) error {
	if p.json {
		for _, r := range all {
			if err := writeJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		return nil
	}
	columns := []string{"perplexity", "±", "nll", "difference", "tokens", "windows"}
	t := newTable(columns...)
	t.AppendHeader(table.Row{"attention (" + p.mode + ")", columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]})
	for _, r := range all {
		t.AppendRow(table.Row{r.Attn, fmt.Sprintf("%.4f", r.Perplexity), fmt.Sprintf("%.4f", r.StdErr), fmt.Sprintf("%.4f", r.NLL),
			fmt.Sprintf("%+.4f", r.Difference), r.Tokens, r.Windows})
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Render())
	return err
}
