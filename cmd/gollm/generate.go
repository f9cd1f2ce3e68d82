package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

const generateLong = `Continue a text, or with --chat answer it.

The text comes from -p, from -f or from stdin; the bytes of a file are the
prompt exactly, nothing is trimmed and \n is not an escape. Special tokens
such as <|eot_id|> are read as tokens (--no-special reads them as text), and the
beginning-of-text token is added where the model wants it (--no-bos leaves it
out).

The continuation goes to stdout as it comes, one line of statistics to stderr.
Where stdout is no terminal it gets the continuation and not a byte more.

Tokens are sampled as llama.cpp samples them. --sampler-order names the samplers in
the order in which they work, as llama.cpp's --samplers does. By default the
temperature comes last, so that --top-k, --top-p and --min-p keep the same tokens
at any temperature.

With --json one object is printed at the end. Its stop_reason says what ended the
text: "end" (the model itself), "length" (-n), "string" (--stop), "context" (the
context is full, see --ctx) or "cancelled" (Ctrl-C).

A progress bar appears for a long prompt where stderr is a terminal; elsewhere -v
says on lines how far it is.

Ctrl-C ends the generation: what was written is kept, the statistics are
printed, the exit code is 130. A second Ctrl-C kills.

The context is as long as the prompt and -n need, at most what the model was
trained for; --ctx sets it.`

const generateExample = `  gollm generate -m model.gguf -p "Once upon a time"
  gollm generate -m model.gguf -f story.txt -n 500 --seed 7
  gollm generate -m model.gguf --chat -p "Why is the sky blue?"
  gollm generate -m model.gguf --temp 0 --json -p "2 + 2 =" | jq -r .text
  git diff | gollm generate -m model.gguf --chat --system "Review this change."`

// generateFlags is what generate can be told.
type generateFlags struct {
	model    openmodel.Flags
	cache    openmodel.CacheFlags
	audit    auditFlags
	sampling samplingFlags
	text     openmodel.TextFlags
	tokens   openmodel.TokenFlags

	limit     int // tokens; below 1 is no limit
	stop      []string
	chat      bool
	template  openmodel.TemplateFlags
	ignoreEnd bool
	json      bool
}

func newGenerate() *cobra.Command {
	var g generateFlags
	cmd := &cobra.Command{
		Use:        "generate -m FILE [-p TEXT | -f FILE]",
		Short:      "Continue a text",
		Long:       generateLong,
		Example:    generateExample,
		GroupID:    groupRun,
		Args:       usage.NoArgs,
		SuggestFor: []string{"run", "complete", "completions", "infer", "main", "cli", "llama-cli"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return g.run(cmd) },
	}
	f := cmd.Flags()
	g.model.RegisterPath(cmd)
	g.text.Register(cmd, "the text to continue")
	f.IntVarP(&g.limit, "tokens", "n", 256, "tokens to write at most; -1: until the model ends its text")
	f.BoolVar(&g.chat, "chat", false, "wrap the text in the model's chat template, as one message")
	g.template.Register(cmd, "what the model is told before the message of --chat")
	registerStop(cmd, &g.stop)
	g.sampling.register(cmd)
	g.cache.Register(cmd, "tokens of context; 0, the default, is as many as are needed")
	g.audit.register(cmd)
	g.cache.Audit = &g.audit
	g.tokens.Register(cmd)
	f.BoolVar(&g.ignoreEnd, "ignore-eos", false, "go on when the model ends its text")
	f.BoolVar(&g.json, "json", false, "print one JSON object at the end instead of text")
	g.model.RegisterRun(cmd)
	return cmd
}

// check reports what is wrong with the command line.
func (g *generateFlags) check(cmd *cobra.Command) error {
	for _, err := range []error{g.model.Check(), g.text.Check(cmd), g.cache.Check(), g.sampling.check(cmd)} {
		if err != nil {
			return err
		}
	}
	inputs := append(append(g.model.Files(), g.cache.Files()...), userfile.Named{Flag: "-f", Path: g.text.File})
	for _, err := range []error{checkLimit(g.limit), checkStop(g.stop), g.audit.checkOutputs(inputs...)} {
		if err != nil {
			return err
		}
	}
	if (g.template.System != "" || g.template.Template != "") && !g.chat {
		return usage.Errorf("--system and --template are about conversations: add --chat")
	}
	return nil
}

func (g *generateFlags) run(cmd *cobra.Command) error {
	if err := g.check(cmd); err != nil {
		return err
	}
	text, err := g.text.Read(cmd)
	if err != nil {
		return err
	}
	m, err := g.model.Open(cmd)
	if err != nil {
		return err
	}
	defer m.Close()
	prompt, err := g.prompt(cmd, m, text)
	if err != nil {
		return err
	}
	size, err := g.size(m, len(prompt))
	if err != nil {
		return err
	}
	g.cache.RepeatLastN = g.sampling.in(size)
	r, err := m.Runner(&g.cache, size, g.sampling.Seed)
	if err != nil {
		return err
	}
	return g.generate(cmd, m, r, prompt)
}

// prompt turns the text into tokens.
func (g *generateFlags) prompt(cmd *cobra.Command, m *openmodel.Model, text string) ([]int32, error) {
	if !g.chat {
		return g.tokens.Encode(m.Tokenizer, text), nil
	}
	s, err := g.template.NewSpeaker(m, console.Warner(cmd))
	if err != nil {
		return nil, err
	}
	s.NoSpecial = g.tokens.NoSpecial
	return s.Encode(cmd.Context(), openmodel.Conversation(g.template.System, nil, text))
}

// spare is the context beside the prompt where -n sets no limit.
const spare = 8192

// size is how many tokens the cache holds: what was asked for, or what prompt
// tokens and -n need.
func (g *generateFlags) size(m *openmodel.Model, prompt int) (int, error) {
	trained := m.Model.Context
	enough := openmodel.RoundUp(prompt+max(min(g.limit, trained), 1), 64)
	if c := g.cache.Context; c > 0 {
		if prompt > c {
			return 0, fmt.Errorf("the prompt has %d tokens, but --ctx is %d; use --ctx %d or a shorter prompt", prompt, c, enough)
		}
		return c, nil
	}
	if prompt > trained {
		return 0, fmt.Errorf("the prompt has %d tokens, but %s was trained for %d; shorten it, or go beyond the training with --ctx %d",
			prompt, m.File.Path(), trained, enough)
	}
	if g.limit < 1 {
		enough = openmodel.RoundUp(prompt+spare, 64)
	}
	return min(trained, enough), nil
}

// generate writes the continuation and the statistics.
func (g *generateFlags) generate(cmd *cobra.Command, m *openmodel.Model, r *engine.Runner, prompt []int32) error {
	seq, err := r.Open()
	if err != nil {
		return err
	}
	ctx, release := console.Interruptible(cmd.Context())
	defer release()
	out := &answerWriter{out: &lastByte{Writer: console.TextOut(cmd)}, quiet: g.json, start: time.Now()}
	ctx, out.cancel = context.WithCancel(ctx)
	defer out.cancel()
	wait := console.NewBar(cmd.ErrOrStderr(), m.Log, "reading the prompt", len(prompt), " tok")
	out.first = wait.Stop
	defer wait.Stop()
	res, err := seq.Generate(ctx, prompt, engine.Options{
		MaxTokens: max(g.limit, 0), Sampling: g.sampling.Params, Stop: g.stop, IgnoreEnd: g.ignoreEnd,
		Emit:     out.emit,
		Progress: func(done float64) { wait.At(int(done * float64(len(prompt)))) },
	})
	wait.Stop()
	if err == nil {
		err = out.err
	}
	if err != nil {
		return err
	}
	out.out.endLine()
	sum := summary{
		Model: m.File.Path(), Device: m.Device.Info().Name, Attn: r.Attn(), Sampling: g.sampling.Params,
		Prompt: prompt, KVBytes: r.KVBytes(), First: out.ttft, Result: res,
		KVShared: seq.KVShared(),
	}
	if sum.Figures, err = seq.Figures(); err != nil {
		return err
	}
	if sum.NaNScores, err = r.NaNScores(); err != nil {
		return err
	}
	if res.Stop != engine.StopCancelled || len(res.Tokens) > 0 {
		sum.Hash = logitsHash(seq, m.Model.Vocab)
	}
	if err := errors.Join(sum.print(cmd, g.json), g.audit.finish(cmd, m)); err != nil {
		return err
	}
	if res.Stop == engine.StopCancelled {
		return console.ErrInterrupted
	}
	return nil
}
