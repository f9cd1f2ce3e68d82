package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/serve/openai"
	"github.com/gollm/gollm/sparse"
)

const serveLong = `Answer the requests of OpenAI's clients over HTTP.

Every harness, script or chat program that talks to an OpenAI endpoint then runs over
this model, and over any attention method: start the server with several --attn and say
"attn" in the body of a request, or leave it out for the first one. Requests run side by
side (continuous batching), prompts with a common beginning share its pages (prefix
cache), and an answer does not depend on what else is running.

The KV cache is --cache tokens large, for all sequences together; each may have --ctx.
Where --cache is 0, the default, it is half of the memory that is free, at most --slots
times --ctx.

The server listens on this machine only. Another --host needs an --api-key-file, or
--no-auth said aloud. Ctrl-C or SIGTERM lets the requests that run finish, for --drain
at most; a second one ends them.

docs/serve.md has the endpoints, and an example for each client.`

const serveExample = `  gollm serve -m Llama-3.2-1B-Instruct-Q4_K_M.gguf
  gollm serve -m model.gguf --attn dense --attn 'prefill=sketchwalk decode=vattention' --slots 32 --ctx 32k
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once upon a time"}'`

// serveFlags is what serve can be told.
type serveFlags struct {
	model    openmodel.Flags
	template openmodel.TemplateFlags
	cache    openmodel.CacheFlags // of which KV is registered
	attn     []string
	name     string
	host     string
	port     int

	ctx, size   string // tokens
	slots       int
	queue       int
	stall       time.Duration
	noPrefix    bool
	seed        uint64
	keyFile     string
	noAuth      bool
	origins     []string
	maxBody     int // MiB
	connections int
	drain       time.Duration
	logPrompts  bool
	roofline    bool
}

func newServe() *cobra.Command {
	var s serveFlags
	cmd := &cobra.Command{
		Use:        "serve -m FILE",
		Short:      "Answer OpenAI's clients over HTTP",
		Long:       serveLong,
		Example:    serveExample,
		GroupID:    groupRun,
		Args:       usage.NoArgs,
		SuggestFor: []string{"server", "http", "api", "openai", "llama-server"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	s.model.RegisterPath(cmd)
	f.StringArrayVar(&s.attn, "attn", []string{"dense"}, openmodel.AttnUsage+"; several times for several, of which a request names one")
	openmodel.CompleteAttn(cmd)
	f.StringVar(&s.host, "host", "127.0.0.1", "address to listen on")
	f.IntVar(&s.port, "port", 8080, "port to listen on; 0 is any that is free")
	f.StringVar(&s.ctx, "ctx", "0", "tokens of a sequence, such as 32k; 0 is what the model was trained for")
	f.StringVar(&s.size, "cache", "0", "tokens of the KV cache, of all sequences together; 0 is by memory")
	f.IntVar(&s.slots, "slots", 16, "sequences of an attention spec that run at once")
	f.IntVar(&s.queue, "queue", 256, "requests that wait; one more is refused")
	f.DurationVar(&s.stall, "max-stall", 200*time.Millisecond, "how long answers wait for a part of another prompt; 0 is no limit")
	f.BoolVar(&s.noPrefix, "no-prefix-cache", false, "compute every prompt anew")
	s.template.RegisterTemplate(cmd)
	f.StringVar(&s.name, "name", "", "name of the model to clients (default: that of the file)")
	f.StringVar(&s.keyFile, "api-key-file", "", "file with the key that clients must send")
	f.BoolVar(&s.noAuth, "no-auth", false, "answer everybody without a key, beyond this machine too")
	f.StringArrayVar(&s.origins, "allow-origin", nil, "origin whose pages may call from a browser, such as https://example.org")
	f.IntVar(&s.maxBody, "max-body", 16, "largest request, in MiB")
	f.IntVar(&s.connections, "max-connections", 1024, "connections at once; more wait")
	f.DurationVar(&s.drain, "drain", 30*time.Second, "how long requests may finish after Ctrl-C or SIGTERM")
	f.BoolVar(&s.logPrompts, "log-prompts", false, "write the bodies of requests to the log")
	f.BoolVar(&s.roofline, "roofline", false, "measure the machine at the start, for /metrics to tell the share of its limit")
	f.Uint64Var(&s.seed, "seed", 0, "seed of attention methods that sample")
	s.cache.RegisterType(cmd)
	s.model.RegisterDevice(cmd)
	_ = cmd.MarkFlagFilename("api-key-file") // fails only for a flag that does not exist
	return cmd
}

// check reports what is wrong with the command line.
func (s *serveFlags) check() error {
	if err := s.model.Check(); err != nil {
		return err
	}
	if _, err := s.cache.DType(); err != nil {
		return err
	}
	for _, f := range []struct {
		name             string
		value, low, high int
	}{
		{"port", s.port, 0, 65535}, {"slots", s.slots, 1, 1024}, {"queue", s.queue, 1, 1 << 20}, {"max-body", s.maxBody, 1, 1024},
		{"max-connections", s.connections, 1, 1 << 20},
	} {
		if f.value < f.low || f.value > f.high {
			return usage.Errorf("--%s %d, want %d to %d", f.name, f.value, f.low, f.high)
		}
	}
	switch {
	case strings.ContainsFunc(s.name, func(r rune) bool { return !isLabel(r) }):
		return usage.Errorf("--name %q has characters that cannot be written, want text", s.name)
	case s.stall < 0:
		return usage.Errorf("--max-stall %v, want 0 or more", s.stall)
	case s.drain < 0:
		return usage.Errorf("--drain %v, want 0 or more", s.drain)
	case !isLoopback(s.host) && s.keyFile == "" && !s.noAuth:
		return usage.Errorf("--host %s is not this machine alone: clients need a key, --api-key-file FILE, or say --no-auth where everybody who reaches it may ask", s.host)
	}
	for _, origin := range s.origins {
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return usage.Errorf("--allow-origin %s, want scheme and host as browsers send them, such as https://example.org", origin)
		}
	}
	_, _, err := s.sizes()
	return err
}

// isLoopback reports whether a host is this machine alone.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// sizes reads --ctx and --cache.
func (s *serveFlags) sizes() (ctx, cache int, err error) {
	for _, f := range []struct {
		name, text string
		to         *int
	}{{"ctx", s.ctx, &ctx}, {"cache", s.size, &cache}} {
		n, ok := openmodel.TokenCount(f.text)
		if !ok && f.text != "0" {
			return 0, 0, usage.Errorf("--%s %s, want a number of tokens, such as 4096 or 32k; 0 is the default", f.name, f.text)
		}
		*f.to = n
	}
	return ctx, cache, nil
}

// specs reads every --attn.
func (s *serveFlags) specs() (specs []*sparse.Spec, err error) {
	for _, text := range s.attn {
		spec, err := openmodel.ReadSpec(text)
		if err != nil {
			return nil, usage.Errorf("--attn: %v", err)
		}
		if slices.ContainsFunc(specs, spec.Same) {
			return nil, usage.Errorf("--attn %s is there twice", text)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// readKey reads --api-key-file, "" for none.
func readKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := userfile.ReadLimited(path, userfile.MaxSpec)
	if err != nil {
		return "", userfile.OpenError("--api-key-file", path, "a key", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return "", fmt.Errorf("--api-key-file %s holds no key: want one word", path)
	}
	return key, nil
}

func (s *serveFlags) run(cmd *cobra.Command) error {
	if err := s.check(); err != nil {
		return err
	}
	specs, err := s.specs()
	if err != nil {
		return err
	}
	key, err := readKey(s.keyFile)
	if err != nil {
		return err
	}
	m, err := s.model.Open(cmd)
	if err != nil {
		return err
	}
	defer m.Close()
	runners, err := s.runners(m, specs)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(s.host, strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("%w; --port names another one", err)
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	c := s.config(cmd, m, log, key)
	if s.roofline {
		c.Metrics.Limit(limitOf(m, s.cache))
	}
	scheduler := serve.New(m.Engine, runners, serve.Config{MaxStall: s.stall, MaxQueue: s.queue, NoPrefix: s.noPrefix, Observe: c.Metrics})
	c.Metrics.Watch(scheduler, c.Model)
	c.Scheduler = scheduler
	blocks, _ := runners[0].Blocks()
	log.Info("listening", "url", "http://"+listener.Addr().String()+"/v1", "model", c.Model, "attn", strings.Join(s.attn, "; "),
		"slots", s.slots, "ctx", runners[0].Context(), "cache", blocks*device.PageLen)
	err = s.serve(cmd, limited(listener, s.connections), openai.New(c), scheduler, log)
	return errors.Join(err, engine.CloseAll(runners))
}

// limitOf measures the machine and returns the minimum time of a decode step.
func limitOf(m *openmodel.Model, cache openmodel.CacheFlags) func(serve.Pass) time.Duration {
	kv, _ := cache.DType() // was checked
	budget, peaks := eval.NewBudget(m.File, m.Model.Config, kv), m.Device.Roofline()
	return func(p serve.Pass) time.Duration {
		r := p.Reads
		pairs, past := float64(max(r.Pairs, 1)), float64(max(r.Past, 1))
		share := eval.Share{Density: float64(r.Selected) / pairs, K: float64(r.K) / past, V: float64(r.V) / past}
		work, _ := budget.Decode(p.Past/max(p.Rows, 1)-1, p.Rows, share)
		seconds, _ := work.Limit(peaks)
		return time.Duration(seconds * float64(time.Second))
	}
}

// modelName is the name of the model to clients: what the user said, or that of the file, in which
// bytes that are no text, and so could be no label of a metric, are replaced.
func (s *serveFlags) modelName() string {
	if s.name != "" {
		return s.name
	}
	name := strings.Map(func(r rune) rune {
		if isLabel(r) {
			return r
		}
		return '_'
	}, strings.TrimSuffix(filepath.Base(s.model.Path), ".gguf"))
	return cmp.Or(name, "model")
}

// isLabel reports whether a character may be in the name of a model.
func isLabel(r rune) bool { return r != utf8.RuneError && unicode.IsGraphic(r) }

// config is what the endpoints are told.
func (s *serveFlags) config(cmd *cobra.Command, m *openmodel.Model, log *slog.Logger, key string) openai.Config {
	info, _ := debug.ReadBuildInfo()
	name := s.modelName()
	c := openai.Config{
		Tokenizer: m.Tokenizer, Model: name, Attn: s.attn, Version: versionText(info), Key: key, MaxBody: int64(s.maxBody) << 20,
		Local: isLoopback(s.host) && key == "" && !s.noAuth, Origins: s.origins, Log: log, LogText: s.logPrompts, Metrics: openai.NewMetrics(name, s.attn),
	}
	speaker, err := s.template.NewSpeaker(m, console.Warner(cmd))
	if err != nil {
		log.Warn("no conversations", "why", console.Message(err))
	} else {
		c.Template = speaker
	}
	return c
}

// runners makes the cache and a runner of each spec.
func (s *serveFlags) runners(m *openmodel.Model, specs []*sparse.Spec) ([]*engine.Runner, error) {
	kv, err := s.cache.DType()
	if err != nil {
		return nil, err
	}
	ctx, cache, err := s.sizes()
	if err != nil {
		return nil, err
	}
	if ctx == 0 {
		ctx = m.Model.Context
	}
	m.WarnContext(ctx)
	if cache == 0 {
		cache = s.slots * ctx
		if free := int(min(m.Device.Info().Free, 1<<62)); free > 0 {
			cache = min(cache, max(free/2/m.Model.KVBytes(kv.BlockSize()), device.PageLen))
		}
	}
	blocks := openmodel.RoundUp(cache, device.PageLen) / device.PageLen
	if err := m.CheckCache(blocks*device.PageLen, 1, kv); err != nil {
		return nil, err
	}
	return m.NewRunners(engine.Config{Context: ctx, Slots: s.slots, Blocks: blocks, KV: kv, Seed: s.seed}, specs...)
}

// The limits of a connection.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10 // bytes
)

// httpServer is the server of HTTP with the limits of its connections.
func httpServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// serve answers until a signal, lets what runs finish, and returns when everything has
// ended.
func (s *serveFlags) serve(cmd *cobra.Command, l *limitedListener, h http.Handler, scheduler *serve.Scheduler, log *slog.Logger) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	console.TakeInterrupts(cmd.Context())
	server := httpServer(h, log)
	server.ConnState = l.note
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-cmd.Context().Done():
	case <-scheduler.Done(): // a pass has failed for good
	case sig := <-signals:
		log.Info("draining", "signal", sig.String(), "at_most", s.drain, "requests", scheduler.Stats().Running+scheduler.Stats().Waiting)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.drain)
	defer cancel()
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	scheduler.Close(ctx)
	shutdown, stop := context.WithTimeout(context.Background(), time.Second) // for the last bytes of answers
	defer stop()
	if server.Shutdown(shutdown) != nil {
		err = errors.Join(err, server.Close())
	}
	if why := scheduler.Err(); why != serve.ErrClosed {
		err = errors.Join(err, why)
	}
	log.Info("closed")
	return err
}
