package main

import (
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
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/tokenizer/chat"
)

const chatLong = `Talk with a model.

Each line is a message; a line that ends in a backslash goes on in the next one.
The conversation so far stays in the KV cache, so that only what is new is read.

On a terminal the keys are those of shells: arrows, Ctrl-A and Ctrl-E, Alt-B and
Alt-F, Ctrl-K, Ctrl-U, Ctrl-W and Ctrl-Y, up and down for what was typed before, Tab
for commands and files. A paste is one message, however many lines it has. Alt-Enter
begins another line, and so does Enter in a message that begins with """ until """
ends it. Messages are remembered for later sessions in a file that only you can
read; --history names another one, or off.

Ctrl-C clears the line, or stops the answer, not the program; Ctrl-D on an empty
line ends it. Lines that begin with / are commands: /help lists them. Where stdin is
no terminal, each line of it is a message, only the answers are printed, and a
command that fails ends the program with an error.

With --url the model is that of a server, gollm serve or another one with OpenAI's
API; -m is then its name there, which a server of one model needs not be told, and what
the command line does not say of sampling is up to the server.`

const chatExample = `  gollm chat -m Llama-3.2-1B-Instruct-Q4_K_M.gguf
  gollm chat -m model.gguf --system "Answer in French." --ctx 16384
  gollm chat --url http://127.0.0.1:8080 --api-key-file key.txt
  printf 'My name is Ada.\nWhat is my name?\n' | gollm chat -m model.gguf`

const chatHelp = `  /clear          forget the conversation
  /system TEXT    set the system prompt and begin anew; without TEXT show it
  /regen          answer the last message again, with another seed
  /undo           take the last message and its answer back
  /save FILE      write the conversation as JSON; -f FILE overwrites any file
  /load FILE      go on with a conversation of a file
  /stats          speed of the last answer, and how full the context is
  /help           this list
  /exit           end; so do /quit, /bye and Ctrl-D
  Ctrl-C          clear the line, or stop the answer
  Alt-Enter       another line; so do \ at the end of a line, and """ around lines
`

// chatContext is the context of a conversation where --ctx does not say more.
const chatContext = 8192

// chatFlags is what chat can be told.
type chatFlags struct {
	model    openmodel.Flags
	cache    openmodel.CacheFlags
	audit    auditFlags
	sampling samplingFlags
	template openmodel.TemplateFlags
	limit    int
	stop     []string

	noSpecial bool
	history   string

	url, keyFile string // of a server that runs the model; "" is none
}

func newChat() *cobra.Command {
	var c chatFlags
	cmd := &cobra.Command{
		Use:        "chat -m FILE",
		Short:      "Talk with a model",
		Long:       chatLong,
		Example:    chatExample,
		GroupID:    groupRun,
		Args:       usage.NoArgs,
		SuggestFor: []string{"run", "talk", "interactive", "repl"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.model.RegisterPath(cmd)
	c.template.Register(cmd, "what the model is told before the conversation")
	cmd.Flags().IntVarP(&c.limit, "tokens", "n", -1, "tokens of an answer at most; -1: until the model ends it")
	registerStop(cmd, &c.stop)
	cmd.Flags().BoolVar(&c.noSpecial, "no-special", false, "refuse messages that contain <|eot_id|> and its like")
	cmd.Flags().StringVar(&c.history, "history", "", "file of what was typed on a terminal; off: none (default: gollm/chat-history in the folder for state, ~/.local/state)")
	_ = cmd.MarkFlagFilename("history") // fails only for a flag that does not exist
	cmd.Flags().StringVar(&c.url, "url", "", "talk with the model of a server with OpenAI's API, such as http://127.0.0.1:8080/v1")
	cmd.Flags().StringVar(&c.keyFile, "api-key-file", "", "file with the key that the server of --url wants")
	_ = cmd.MarkFlagFilename("api-key-file") // fails only for a flag that does not exist
	c.sampling.register(cmd)
	c.audit.register(cmd)
	c.cache.Audit = &c.audit
	c.cache.Register(cmd, fmt.Sprintf("tokens of context; 0, the default, is what the model was trained for, at most %d", chatContext))
	c.model.RegisterRun(cmd)
	return cmd
}

func (c *chatFlags) run(cmd *cobra.Command) error {
	if c.url != "" {
		return c.runRemote(cmd)
	}
	if c.keyFile != "" {
		return usage.Errorf("--api-key-file is for --url, the server that wants the key")
	}
	inputs := append(c.model.Files(), c.cache.Files()...)
	for _, err := range []error{
		c.model.Check(), c.cache.Check(), c.sampling.check(cmd), checkLimit(c.limit), checkStop(c.stop),
		c.audit.checkOutputs(inputs...), userfile.CheckOutputs(inputs, userfile.Named{Flag: "--history", Path: c.history}),
	} {
		if err != nil {
			return err
		}
	}
	m, err := c.model.Open(cmd)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := c.newSession(cmd, m)
	if err != nil {
		return err
	}
	if err := c.talk(cmd, s); err != nil {
		return err
	}
	return c.audit.finish(cmd, m)
}

// talk answers what is typed until it ends.
func (c *chatFlags) talk(cmd *cobra.Command, s *session) error {
	signal.Notify(s.interrupts, os.Interrupt)
	console.TakeInterrupts(cmd.Context())
	defer signal.Stop(s.interrupts)
	return s.talk(cmd.Context(), c.newEntries(s, cmd))
}

// runRemote talks with the model of a server.
func (c *chatFlags) runRemote(cmd *cobra.Command) error {
	for _, err := range []error{
		c.sampling.check(cmd), checkLimit(c.limit), checkStop(c.stop),
		userfile.CheckOutputs([]userfile.Named{{Flag: "--api-key-file", Path: c.keyFile}}, userfile.Named{Flag: "--history", Path: c.history}),
	} {
		if err != nil {
			return err
		}
	}
	r, err := c.newRemote(cmd)
	if err == nil {
		err = r.choose(cmd.Context())
	}
	if err != nil {
		return err
	}
	s := c.emptySession(cmd)
	s.remote = r
	return c.talk(cmd, s)
}

// emptySession is a session that has nobody to talk with.
func (c *chatFlags) emptySession(cmd *cobra.Command) *session {
	return &session{
		system:  c.template.System,
		options: engine.Options{MaxTokens: max(c.limit, 0), Sampling: c.sampling.Params, Stop: c.stop},
		out:     &lastByte{Writer: console.TextOut(cmd)}, errs: cmd.ErrOrStderr(),
		interactive: console.IsTerminal(cmd.InOrStdin()), log: console.Logger(cmd),
		interrupts: make(chan os.Signal, 1),
	}
}

// newSession makes everything that a conversation needs.
func (c *chatFlags) newSession(cmd *cobra.Command, m *openmodel.Model) (*session, error) {
	speaker, err := c.template.NewSpeaker(m, console.Warner(cmd))
	if err != nil {
		return nil, err
	}
	speaker.NoSpecial = c.noSpecial
	size := c.cache.Context
	if size == 0 {
		size = min(m.Model.Context, chatContext)
	}
	c.cache.RepeatLastN = c.sampling.in(size)
	r, err := m.Runner(&c.cache, size, c.sampling.Seed)
	if err != nil {
		return nil, err
	}
	seq, err := r.Open()
	if err != nil {
		return nil, err
	}
	s := c.emptySession(cmd)
	s.model, s.runner, s.seq, s.speaker = m, r, seq, speaker
	return s, nil
}

// session is one conversation.
type session struct {
	model   *openmodel.Model
	runner  *engine.Runner
	seq     *engine.Sequence
	speaker *openmodel.Speaker
	remote  *remote // a server, instead of the model above; nil: there is none
	options engine.Options

	system   string
	messages []chat.Message // without the system prompt: pairs of a message and its answer
	last     string         // summary of the last answer; empty before it
	file     string         // of the last /save or /load
	regens   uint64         // answers that were written again, each with a seed of its own

	entries     entries
	out         *lastByte
	errs        io.Writer
	interactive bool // a person types
	log         func(format string, args ...any)
	interrupts  chan os.Signal
}

// talk answers entries until they end.
func (s *session) talk(ctx context.Context, from entries) error {
	s.entries = from
	defer from.close()
	switch {
	case !s.interactive:
	case s.remote != nil:
		s.say("%s at %s. /help lists commands, Ctrl-D ends.", s.remote.model, s.remote.base)
	default:
		s.say("%s, a context of %d tokens. /help lists commands, Ctrl-D ends.", filepath.Base(s.model.File.Path()), s.runner.Context())
	}
	for {
		text, err := from.next()
		if err == nil {
			err = s.handle(ctx, text)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// say prints a remark of the program itself.
func (s *session) say(format string, args ...any) {
	fmt.Fprintln(s.errs, console.Elide(console.OneLine(fmt.Sprintf(format, args...)), console.MaxMessage))
}

// answer lets the model answer a message.
func (s *session) answer(ctx context.Context, text string) error {
	if s.remote != nil {
		return s.ask(ctx, text)
	}
	ids, err := s.speaker.Encode(ctx, openmodel.Conversation(s.system, s.messages, text))
	if err == nil && len(ids) >= s.runner.Context() {
		err = fmt.Errorf("the conversation has %d tokens and the context holds %d: /clear begins anew, or start gollm chat with --ctx %d",
			len(ids), s.runner.Context(), openmodel.RoundUp(2*len(ids), 64))
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
	ctx, cancel := s.stoppable(ctx)
	defer cancel()
	fresh := ids[known:]
	wait := console.NewBar(s.errs, s.log, "reading", len(fresh), " tok")
	defer wait.Stop()
	w := &answerWriter{out: s.out, trim: true, first: wait.Stop, cancel: cancel, start: time.Now()}
	o := s.options
	o.Sampling.Seed += s.regens
	o.Emit = w.emit
	o.Progress = func(done float64) { wait.At(int(done * float64(len(fresh)))) }
	res, err := s.seq.Generate(ctx, fresh, o)
	if err == nil {
		err = w.err
	}
	last := summary{
		Result: res, Attn: s.runner.Attn(), Prompt: fresh, Sampling: o.Sampling, KVBytes: s.runner.KVBytes(), First: w.ttft,
	}
	s.last = last.line()
	return res, err
}

// stoppable is a context that Ctrl-C ends.
func (s *session) stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.interrupts:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// finish ends the line of an answer and remembers the turn. An answer that was
// stopped before its first token leaves no trace.
func (s *session) finish(text string, res engine.Result) error {
	if s.out.last != '\n' || res.Text == "" {
		if _, err := io.WriteString(s.out, "\n"); err != nil {
			return err
		}
	}
	s.log("%s", s.last)
	if res.Stop == engine.StopCancelled && !s.interactive {
		return console.ErrInterrupted
	}
	if res.Text != "" || res.Stop != engine.StopCancelled {
		s.messages = append(s.messages,
			chat.Message{Role: "user", Content: text}, chat.Message{Role: "assistant", Content: strings.TrimSpace(res.Text)})
	}
	switch res.Stop {
	case engine.StopContext:
		return s.refuse(errors.New("the context is full and the answer incomplete: /clear begins anew, or start gollm chat with a longer --ctx"))
	case engine.StopCancelled:
		s.entries.drop()
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
