package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

const perplexityLong = `Measure how well a model predicts a text: exp of the mean negative log
likelihood of its tokens, ± the standard error. Lower is better.

The text is cut into windows of --ctx tokens. Each is read from an empty cache,
beginning with the beginning-of-text token where the model has one in place of
the window's first token, and the tokens of its second half are scored. What is
left at the end, shorter than a window, is not read. These are the defaults of
llama.cpp's llama-perplexity, so the figures compare.

With --stride N windows begin N tokens apart and the last N tokens of each are
scored, so that every token is scored after --ctx minus N others or more.`

const perplexityExample = `  gollm perplexity -m model.gguf -f wiki.test.raw
  gollm perplexity -m model.gguf -f book.txt --ctx 2048 --stride 1024 --json`

// perplexityFlags is what perplexity can be told.
type perplexityFlags struct {
	model  openmodel.Flags
	cache  openmodel.CacheFlags
	audit  auditFlags
	text   openmodel.TextFlags
	stride int
	json   bool
}

func newPerplexity() *cobra.Command {
	var p perplexityFlags
	cmd := &cobra.Command{
		Use:        "perplexity -m FILE -f TEXTFILE",
		Short:      "Measure how well a model predicts a text",
		Long:       perplexityLong,
		Example:    perplexityExample,
		GroupID:    groupLook,
		Args:       usage.NoArgs,
		SuggestFor: []string{"ppl", "eval", "llama-perplexity"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	p.model.RegisterPath(cmd)
	p.text.Register(cmd, "the text")
	p.cache.Register(cmd, "tokens of a window; 0, the default, is 512")
	p.audit.register(cmd)
	p.cache.Audit = &p.audit
	cmd.Flags().IntVar(&p.stride, "stride", 0, "begin windows this many tokens apart and score as many; 0, the default, scores the second half of each window")
	cmd.Flags().BoolVar(&p.json, "json", false, "print one JSON object")
	p.model.RegisterRun(cmd)
	return cmd
}

func (p *perplexityFlags) run(cmd *cobra.Command) error {
	inputs := append(append(p.model.Files(), p.cache.Files()...), userfile.Named{Flag: "-f", Path: p.text.File})
	for _, err := range []error{p.model.Check(), p.text.Check(cmd), p.cache.Check(), p.audit.checkOutputs(inputs...)} {
		if err != nil {
			return err
		}
	}
	m, ids, bos, err := openmodel.OpenWithText(cmd, &p.model, &p.text)
	if err != nil {
		return err
	}
	defer m.Close()
	o := eval.PerplexityOptions{Context: p.cache.Context, Stride: p.stride, BOS: bos}
	if o.Context == 0 {
		o.Context = 512
	}
	return p.measure(cmd, m, ids, o)
}

// measure scores the text and prints the figure; when it is interrupted, that of
// the windows so far.
func (p *perplexityFlags) measure(cmd *cobra.Command, m *openmodel.Model, ids []int32, o eval.PerplexityOptions) error {
	r, err := m.Runner(&p.cache, o.Context, 0)
	if err != nil {
		return err
	}
	seq, err := r.Open()
	if err != nil {
		return err
	}
	ctx, release := console.Interruptible(cmd.Context())
	defer release()
	wait := console.NewBar(cmd.ErrOrStderr(), nil, "scoring", len(ids), " tok") // -v says each window
	defer wait.Stop()
	o.Progress = func(done, total int, soFar eval.Perplexity) {
		wait.At(len(ids) * done / total)
		m.Log("window %d of %d: %.4f ± %.4f", done, total, soFar.Value, soFar.StdErr)
	}
	res, err := eval.MeasurePerplexity(ctx, seq, ids, o)
	wait.Stop()
	stopped := err != nil && ctx.Err() != nil
	if err != nil && !stopped {
		return err
	}
	if res.Tokens > 0 {
		if err := errors.Join(p.print(cmd, m, r.Attn(), o, res), p.audit.finish(cmd, m)); err != nil {
			return err
		}
	}
	if stopped {
		return errors.Join(console.ErrInterrupted, err)
	}
	return nil
}

// perplexityReport is the JSON form of a measurement.
type perplexityReport struct {
	Perplexity console.Number `json:"perplexity"`
	StdErr     console.Number `json:"std_err"`
	Tokens     int            `json:"tokens"`
	Windows    int            `json:"windows"`
	Complete   bool           `json:"complete"`
	Context    int            `json:"ctx"`
	Stride     int            `json:"stride"`
	Attn       string         `json:"attn"`
	Model      string         `json:"model"`
}

func (p *perplexityFlags) print(cmd *cobra.Command, m *openmodel.Model, attn string, o eval.PerplexityOptions, res eval.Perplexity) error {
	if p.json {
		return console.WriteJSON(cmd.OutOrStdout(), perplexityReport{
			Perplexity: console.Number(res.Value), StdErr: console.Number(res.StdErr), Tokens: res.Tokens, Windows: res.Windows,
			Complete: res.Complete(), Context: o.Context, Stride: o.Stride, Attn: attn, Model: m.File.Path(),
		})
	}
	note := ""
	if !res.Complete() {
		note = ", interrupted before the end"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "perplexity %.4f ± %.4f (%s scored in %s of %d, attention %s%s)\n",
		res.Value, res.StdErr, console.Plural(res.Tokens, "token"), console.Plural(res.Windows, "window"), o.Context, attn, note)
	return err
}
