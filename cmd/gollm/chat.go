package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/tokenizer/chat"
)

const chatLong = `Talk with a model.

Each line is a message; a line that ends in a backslash goes on in the next one.
The conversation so far stays in the KV cache, so that only what is new is read.

Ctrl-C stops the answer, not the program; Ctrl-D ends it. Lines that begin with /
are commands: /help lists them. Where stdin is no terminal, each line of it is a
message, only the answers are printed, and a line with / that is no command ends
the program with an error.`

const chatExample = `  gollm chat -m Llama-3.2-1B-Instruct-Q4_K_M.gguf
  gollm chat -m model.gguf --system "Answer in French." --ctx 16384
  printf 'My name is Ada.\nWhat is my name?\n' | gollm chat -m model.gguf`

const chatHelp = `  /clear          forget the conversation
  /system TEXT    set the system prompt and begin anew; without TEXT show it
  /stats          speed of the last answer, and how full the context is
  /help           this list
  /exit           end; so does Ctrl-D
  Ctrl-C          stop the answer
`

// chatContext is the context of a conversation where --ctx does not say more.
const chatContext = 8192

// chatFlags is what chat can be told.
type chatFlags struct {
	model    modelFlags
	cache    cacheFlags
	sampling samplingFlags
	template templateFlags
	limit    int
	stop     []string

	noSpecial bool
}

func newChat() *cobra.Command {
	var c chatFlags
	cmd := &cobra.Command{
		Use:        "chat -m FILE",
		Short:      "Talk with a model",
		Long:       chatLong,
		Example:    chatExample,
		GroupID:    groupRun,
		Args:       noArgs,
		SuggestFor: []string{"run", "talk", "interactive", "repl"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.model.registerPath(cmd)
	c.template.register(cmd, "what the model is told before the conversation")
	cmd.Flags().IntVarP(&c.limit, "tokens", "n", -1, "tokens of an answer at most; -1: until the model ends it")
	registerStop(cmd, &c.stop)
	cmd.Flags().BoolVar(&c.noSpecial, "no-special", false, "refuse messages that contain <|eot_id|> and its like")
	c.sampling.register(cmd)
	c.cache.audit.register(cmd)
	c.cache.register(cmd, fmt.Sprintf("tokens of context; 0, the default, is what the model was trained for, at most %d", chatContext))
	c.model.registerDevice(cmd)
	return cmd
}

func (c *chatFlags) run(cmd *cobra.Command) error {
	inputs := append(c.model.files(), c.cache.files()...)
	for _, err := range []error{
		c.model.check(), c.cache.check(), c.sampling.check(cmd), checkLimit(c.limit), checkStop(c.stop),
		c.cache.audit.checkOutputs(inputs...),
	} {
		if err != nil {
			return err
		}
	}
	m, err := c.model.open(cmd)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := c.newSession(cmd, m)
	if err != nil {
		return err
	}
	return errors.Join(s.run(cmd.Context()), c.cache.audit.finish(cmd, m))
}

// newSession makes everything that a conversation needs.
func (c *chatFlags) newSession(cmd *cobra.Command, m *openModel) (*session, error) {
	speaker, err := c.template.newSpeaker(m, warner(cmd))
	if err != nil {
		return nil, err
	}
	speaker.noSpecial = c.noSpecial
	size := c.cache.context
	if size == 0 {
		size = min(m.Model.Context, chatContext)
	}
	r, err := m.runner(&c.cache, size, c.sampling.Seed)
	if err != nil {
		return nil, err
	}
	seq, err := r.Open()
	if err != nil {
		return nil, err
	}
	return &session{
		model: m, runner: r, seq: seq, speaker: speaker, system: c.template.system,
		options: engine.Options{MaxTokens: max(c.limit, 0), Sampling: c.sampling.Sampling, Stop: c.stop},
		in:      cmd.InOrStdin(), out: &lastByte{Writer: cmd.OutOrStdout()}, errs: cmd.ErrOrStderr(),
		interactive: isTerminal(cmd.InOrStdin()), log: logger(cmd),
		interrupts: make(chan os.Signal, 1),
	}, nil
}

// session is one conversation.
type session struct {
	model   *openModel
	runner  *engine.Runner
	seq     *engine.Sequence
	speaker *speaker
	options engine.Options

	system   string
	messages []chat.Message // without the system prompt
	last     *summary       // of the last answer; nil before it

	in          io.Reader
	out         *lastByte
	errs        io.Writer
	interactive bool // a person types
	log         func(format string, args ...any)
	interrupts  chan os.Signal
}

// run talks until the input ends.
func (s *session) run(ctx context.Context) error {
	signal.Notify(s.interrupts, os.Interrupt)
	takeInterrupts(ctx)
	defer signal.Stop(s.interrupts)
	if s.interactive {
		s.say("%s, a context of %d tokens. /help lists commands, Ctrl-D ends.", filepath.Base(s.model.File.Path()), s.runner.Context())
	}
	lines := readLines(s.in)
	for {
		line, err := s.next(lines)
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if err := s.handle(ctx, line); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

// line is a line of input, or the error that ended it.
type line struct {
	text string
	err  error
}

// readLines reads lines in the background, so that Ctrl-C is seen meanwhile.
func readLines(in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		r := bufio.NewReader(in)
		for {
			text, err := readMessage(r)
			if text != "" {
				lines <- line{text: text}
			}
			if err != nil {
				lines <- line{err: err}
				return
			}
		}
	}()
	return lines
}

// readMessage reads a line, and the next one too where it ends in a backslash.
func readMessage(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		text, err := readLine(r, "a line of stdin", mostText)
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
		more, goesOn := strings.CutSuffix(text, `\`)
		b.WriteString(more)
		if err != nil || !goesOn {
			return b.String(), err
		}
		b.WriteByte('\n')
	}
}

// next shows the prompt and waits for a line. Ctrl-C only says how to leave,
// except where nobody types: there it ends the program.
func (s *session) next(lines <-chan line) (string, error) {
	for {
		if s.interactive {
			if _, err := io.WriteString(s.out, "> "); err != nil {
				return "", err
			}
		}
		select {
		case l := <-lines:
			if l.err == io.EOF && s.interactive {
				_, _ = io.WriteString(s.out, "\n") // the shell's prompt goes on a line of its own
			}
			return l.text, l.err
		case <-s.interrupts:
			if !s.interactive {
				return "", errInterrupted
			}
			_, _ = io.WriteString(s.out, "\n") // cosmetic
			s.say("Ctrl-D or /exit ends the conversation.")
		}
	}
}

// say prints a remark of the program itself.
func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.errs, format+"\n", args...)
}

// handle runs a command or answers a message. io.EOF ends the conversation.
func (s *session) handle(ctx context.Context, text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if !strings.HasPrefix(text, "/") {
		return s.answer(ctx, text)
	}
	name, rest, _ := strings.Cut(text, " ")
	switch name {
	case "/help":
		fmt.Fprint(s.errs, chatHelp)
	case "/clear":
		s.messages = nil
		s.say("The conversation is forgotten.")
	case "/system":
		s.setSystem(strings.TrimSpace(rest))
	case "/stats":
		s.stats()
	case "/exit", "/quit":
		return io.EOF
	default:
		return s.refuse(fmt.Errorf("%s is no command; /help lists them, and a message that begins with / needs a space before it", name))
	}
	return nil
}

// refuse says what is wrong with a line, which ends the conversation only where
// nobody types.
func (s *session) refuse(err error) error {
	if !s.interactive {
		return err
	}
	s.say("gollm: %s", message(err))
	return nil
}

// setSystem changes or shows the system prompt.
func (s *session) setSystem(text string) {
	if text == "" {
		s.say("The system prompt is %q.", s.system)
		return
	}
	s.system, s.messages = text, nil
	s.say("The system prompt is set; the conversation begins anew.")
}

// stats shows the last answer's speed and the context.
func (s *session) stats() {
	if s.last != nil {
		s.say("%s", s.last.line())
	}
	s.say("%d of %d tokens of context are used.", s.seq.Len(), s.runner.Context())
}

// answer lets the model answer a message.
func (s *session) answer(ctx context.Context, text string) error {
	ids, err := s.speaker.encode(ctx, conversation(s.system, s.messages, text))
	if err == nil && len(ids) >= s.runner.Context() {
		err = fmt.Errorf("the conversation has %d tokens and the context holds %d: /clear begins anew, or start gollm chat with --ctx %d",
			len(ids), s.runner.Context(), roundUp(2*len(ids), 64))
	}
	if err != nil {
		return s.refuse(err)
	}
	res, err := s.generate(ctx, ids)
	if err != nil {
		return err
	}
	return s.finish(text, res)
}

// generate continues the conversation, of which only what is new is read.
func (s *session) generate(ctx context.Context, ids []int32) (engine.Result, error) {
	known := s.seq.Truncate(min(commonPrefix(s.seq.Tokens(), ids), len(ids)-1))
	s.log("%d tokens, %d of them in the cache", len(ids), known)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.interrupts:
			cancel()
		case <-ctx.Done():
		}
	}()
	fresh := ids[known:]
	wait := newBar(s.errs, s.log, "reading", len(fresh), " tok")
	defer wait.stop()
	w := &answerWriter{out: s.out, trim: true, first: wait.stop, cancel: cancel, start: time.Now()}
	o := s.options
	o.Emit = w.emit
	o.Progress = func(done float64) { wait.at(int(done * float64(len(fresh)))) }
	res, err := s.seq.Generate(ctx, fresh, o)
	if err == nil {
		err = w.err
	}
	s.last = &summary{
		Result: res, Attn: s.runner.Attn(), Prompt: fresh, Seed: o.Sampling.Seed, KVBytes: s.runner.KVBytes(), First: w.ttft,
		sampled: o.Sampling.Temperature > 0,
	}
	return res, err
}

// finish ends the line of an answer and remembers the turn. An answer that was
// stopped before its first token leaves no trace.
func (s *session) finish(text string, res engine.Result) error {
	if s.out.last != '\n' || res.Text == "" {
		if _, err := io.WriteString(s.out, "\n"); err != nil {
			return err
		}
	}
	s.log("%s", s.last.line())
	if res.Stop == engine.StopCancelled && !s.interactive {
		return errInterrupted
	}
	if len(res.Tokens) > 0 || res.Stop != engine.StopCancelled {
		s.messages = append(s.messages,
			chat.Message{Role: "user", Content: text}, chat.Message{Role: "assistant", Content: strings.TrimSpace(res.Text)})
	}
	switch res.Stop {
	case engine.StopContext:
		return s.refuse(errors.New("the context is full and the answer incomplete: /clear begins anew, or start gollm chat with a longer --ctx"))
	case engine.StopCancelled:
		s.say("[stopped]")
	}
	return nil
}

// commonPrefix is how many tokens a and b begin with together.
func commonPrefix(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
