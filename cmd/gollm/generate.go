package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
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
	model    modelFlags
	cache    cacheFlags
	sampling samplingFlags
	text     textFlags
	tokens   tokenFlags

	limit     int // tokens; below 1 is no limit
	stop      []string
	chat      bool
	template  templateFlags
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
		Args:       noArgs,
		SuggestFor: []string{"run", "complete", "completions", "infer", "main", "cli", "llama-cli"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return g.run(cmd) },
	}
	f := cmd.Flags()
	g.model.registerPath(cmd)
	g.text.register(cmd, "the text to continue")
	f.IntVarP(&g.limit, "tokens", "n", 256, "tokens to write at most; -1: until the model ends its text")
	f.BoolVar(&g.chat, "chat", false, "wrap the text in the model's chat template, as one message")
	g.template.register(cmd, "what the model is told before the message of --chat")
	registerStop(cmd, &g.stop)
	g.sampling.register(cmd)
	g.cache.register(cmd, "tokens of context; 0, the default, is as many as are needed")
	g.cache.audit.register(cmd)
	g.tokens.register(cmd)
	f.BoolVar(&g.ignoreEnd, "ignore-eos", false, "go on when the model ends its text")
	f.BoolVar(&g.json, "json", false, "print one JSON object at the end instead of text")
	g.model.registerDevice(cmd)
	return cmd
}

// check reports what is wrong with the command line.
func (g *generateFlags) check(cmd *cobra.Command) error {
	for _, err := range []error{g.model.check(), g.text.check(cmd), g.cache.check(), g.sampling.check(cmd)} {
		if err != nil {
			return err
		}
	}
	inputs := append(append(g.model.files(), g.cache.files()...), namedFile{"-f", g.text.file})
	for _, err := range []error{checkLimit(g.limit), checkStop(g.stop), g.cache.audit.checkOutputs(inputs...)} {
		if err != nil {
			return err
		}
	}
	if (g.template.system != "" || g.template.template != "") && !g.chat {
		return usagef("--system and --template are about conversations: add --chat")
	}
	return nil
}

// registerStop registers --stop.
func registerStop(cmd *cobra.Command, stop *[]string) {
	cmd.Flags().StringArrayVar(stop, "stop", nil, "end at this text, which is left out (repeatable)")
}

// checkStop refuses a --stop that everything contains.
func checkStop(stop []string) error {
	if slices.Contains(stop, "") {
		return usagef(`--stop "", want a text that ends the generation`)
	}
	return nil
}

// checkLimit refuses a -n that is neither a number of tokens nor -1.
func checkLimit(n int) error {
	if n == 0 || n < -1 {
		return usagef("-n %d, want 1 or more, or -1 for no limit", n)
	}
	return nil
}

func (g *generateFlags) run(cmd *cobra.Command) error {
	if err := g.check(cmd); err != nil {
		return err
	}
	text, err := g.text.read(cmd)
	if err != nil {
		return err
	}
	m, err := g.model.open(cmd)
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
	g.cache.last = g.sampling.in(size)
	r, err := m.runner(&g.cache, size, g.sampling.Seed)
	if err != nil {
		return err
	}
	return g.generate(cmd, m, r, prompt)
}

// prompt turns the text into tokens.
func (g *generateFlags) prompt(cmd *cobra.Command, m *openModel, text string) ([]int32, error) {
	if !g.chat {
		return g.tokens.encode(m.Tokenizer, text), nil
	}
	s, err := g.template.newSpeaker(m, warner(cmd))
	if err != nil {
		return nil, err
	}
	s.noSpecial = g.tokens.noSpecial
	return s.encode(cmd.Context(), conversation(g.template.system, nil, text))
}

// spare is the context beside the prompt where -n sets no limit.
const spare = 8192

// size is how many tokens the cache holds: what was asked for, or what prompt
// tokens and -n need.
func (g *generateFlags) size(m *openModel, prompt int) (int, error) {
	trained := m.Model.Context
	enough := roundUp(prompt+max(min(g.limit, trained), 1), 64)
	if c := g.cache.context; c > 0 {
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
		enough = roundUp(prompt+spare, 64)
	}
	return min(trained, enough), nil
}

// generate writes the continuation and the statistics.
func (g *generateFlags) generate(cmd *cobra.Command, m *openModel, r *engine.Runner, prompt []int32) error {
	seq, err := r.Open()
	if err != nil {
		return err
	}
	ctx, release := interruptible(cmd.Context())
	defer release()
	out := &answerWriter{out: &lastByte{Writer: textOut(cmd)}, quiet: g.json, start: time.Now()}
	ctx, out.cancel = context.WithCancel(ctx)
	defer out.cancel()
	wait := newBar(cmd.ErrOrStderr(), m.log, "reading the prompt", len(prompt), " tok")
	out.first = wait.stop
	defer wait.stop()
	res, err := seq.Generate(ctx, prompt, engine.Options{
		MaxTokens: max(g.limit, 0), Sampling: g.sampling.Sampling, Stop: g.stop, IgnoreEnd: g.ignoreEnd,
		Emit:     out.emit,
		Progress: func(done float64) { wait.at(int(done * float64(len(prompt)))) },
	})
	wait.stop()
	if err == nil {
		err = out.err
	}
	if err != nil {
		return err
	}
	out.out.endLine()
	sum := summary{
		Model: m.File.Path(), Device: m.Device.Info().Name, Attn: r.Attn(), Sampling: g.sampling.Sampling,
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
	if err := errors.Join(sum.print(cmd, g.json), g.cache.audit.finish(cmd, m)); err != nil {
		return err
	}
	if res.Stop == engine.StopCancelled {
		return errInterrupted
	}
	return nil
}

// answerWriter passes on the model's text as it comes.
type answerWriter struct {
	out    *lastByte
	quiet  bool   // text is not shown, only timed
	trim   bool   // white space before the first word is not shown
	first  func() // called before the first token
	cancel func() // ends the generation when nobody reads it
	start  time.Time
	ttft   time.Duration // from start to the first token; 0 where there was none
	err    error         // of the first write that failed
}

func (w *answerWriter) emit(p engine.Piece) {
	if w.ttft == 0 {
		w.ttft = time.Since(w.start)
		w.first()
	}
	text := p.Text
	if w.trim {
		text = strings.TrimLeft(text, " \n")
		w.trim = text == ""
	}
	if w.quiet || w.err != nil {
		return
	}
	if _, w.err = io.WriteString(w.out, text); w.err != nil {
		w.cancel()
	}
}
