package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval"
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
	model  modelFlags
	cache  cacheFlags
	text   textFlags
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
		Args:       noArgs,
		SuggestFor: []string{"ppl", "eval", "llama-perplexity"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	p.model.registerPath(cmd)
	p.text.register(cmd, "the text")
	p.cache.register(cmd, "tokens of a window; 0, the default, is 512")
	p.cache.audit.register(cmd)
	cmd.Flags().IntVar(&p.stride, "stride", 0, "begin windows this many tokens apart and score as many; 0, the default, scores the second half of each window")
	cmd.Flags().BoolVar(&p.json, "json", false, "print one JSON object")
	p.model.registerDevice(cmd)
	return cmd
}

func (p *perplexityFlags) run(cmd *cobra.Command) error {
	inputs := append(append(p.model.files(), p.cache.files()...), namedFile{"-f", p.text.file})
	for _, err := range []error{p.model.check(), p.text.check(cmd), p.cache.check(), p.cache.audit.checkOutputs(inputs...)} {
		if err != nil {
			return err
		}
	}
	m, ids, bos, err := openWithText(cmd, &p.model, &p.text)
	if err != nil {
		return err
	}
	defer m.Close()
	o := eval.PerplexityOptions{Context: p.cache.context, Stride: p.stride, BOS: bos}
	if o.Context == 0 {
		o.Context = 512
	}
	return p.measure(cmd, m, ids, o)
}

// openWithText opens a model and reads a text in its tokens. The text is data: what
// looks like a special token in it is none. bos is the token that begins a window,
// -1 where the model has none.
func openWithText(cmd *cobra.Command, model *modelFlags, text *textFlags) (m *openModel, ids []int32, bos int32, err error) {
	words, err := text.read(cmd)
	if err != nil {
		return nil, nil, 0, err
	}
	if m, err = model.open(cmd); err != nil {
		return nil, nil, 0, err
	}
	bos = -1
	if m.Tokenizer.AddsBOS() {
		bos = m.Tokenizer.BOS()
	}
	return m, (&tokenFlags{noSpecial: true}).encode(m.Tokenizer, words), bos, nil
}

// measure scores the text and prints the figure; when it is interrupted, that of
// the windows so far.
func (p *perplexityFlags) measure(cmd *cobra.Command, m *openModel, ids []int32, o eval.PerplexityOptions) error {
	r, err := m.runner(&p.cache, o.Context, 0)
	if err != nil {
		return err
	}
	seq, err := r.Open()
	if err != nil {
		return err
	}
	ctx, release := interruptible(cmd.Context())
	defer release()
	wait := newBar(cmd.ErrOrStderr(), nil, "scoring", len(ids), " tok") // -v says each window
	defer wait.stop()
	o.Progress = func(done, total int, soFar eval.Perplexity) {
		wait.at(len(ids) * done / total)
		m.log("window %d of %d: %.4f ± %.4f", done, total, soFar.Value, soFar.StdErr)
	}
	res, err := eval.MeasurePerplexity(ctx, seq, ids, o)
	wait.stop()
	stopped := err != nil && ctx.Err() != nil
	if err != nil && !stopped {
		return err
	}
	if res.Tokens > 0 {
		if err := errors.Join(p.print(cmd, m, r.Attn(), o, res), p.cache.audit.finish(cmd, m)); err != nil {
			return err
		}
	}
	if stopped {
		return errors.Join(errInterrupted, err)
	}
	return nil
}

// perplexityReport is the JSON form of a measurement.
type perplexityReport struct {
	Perplexity jsonNumber `json:"perplexity"`
	StdErr     jsonNumber `json:"std_err"`
	Tokens     int        `json:"tokens"`
	Windows    int        `json:"windows"`
	Complete   bool       `json:"complete"`
	Context    int        `json:"ctx"`
	Stride     int        `json:"stride"`
	Attn       string     `json:"attn"`
	Model      string     `json:"model"`
}

func (p *perplexityFlags) print(cmd *cobra.Command, m *openModel, attn string, o eval.PerplexityOptions, res eval.Perplexity) error {
	if p.json {
		return writeJSON(cmd.OutOrStdout(), perplexityReport{
			Perplexity: jsonNumber(res.Value), StdErr: jsonNumber(res.StdErr), Tokens: res.Tokens, Windows: res.Windows,
			Complete: res.Complete(), Context: o.Context, Stride: o.Stride, Attn: attn, Model: m.File.Path(),
		})
	}
	note := ""
	if !res.Complete() {
		note = ", interrupted before the end"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "perplexity %.4f ± %.4f (%s scored in %s of %d, attention %s%s)\n",
		res.Value, res.StdErr, plural(res.Tokens, "token"), plural(res.Windows, "window"), o.Context, attn, note)
	return err
}
