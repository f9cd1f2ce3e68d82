package openai

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer"
)

// Config is what a server serves, and its limits.
type Config struct {
	Scheduler *serve.Scheduler
	Tokenizer *tokenizer.Tokenizer
	Model     string   // the name that clients say
	Attn      []string // the attention specs as the user wrote them, in the order of the scheduler's
	Template  Template // nil: no conversations
	Version   string

	Key      string        // that clients must have; "" is none
	MaxBody  int64         // bytes
	BodyTime time.Duration // how long a client may take to send a body; 0 is [BodyTime]
	Patience time.Duration // how long a client may take to read an event or an answer; 0 is [Patience]
	Local    bool          // answers only clients that call this machine by a name of its own
	Origins  []string      // that browsers may call from (CORS); none by default
	Log      *slog.Logger
	LogText  bool // log prompts
	Metrics  *Metrics
}

// The defaults of [Config].
const (
	BodyTime = time.Minute
	Patience = 30 * time.Second
)

// Server answers requests. Make it with [New].
type Server struct {
	conf    Config
	specs   []*sparse.Spec // of the scheduler
	key     [sha256.Size]byte
	started time.Time
	schemas schemas
	held    atomic.Int64                   // bytes of bodies
	routes  map[string]map[string]endpoint // by path and method
}

// endpoint answers a request, or returns the error to answer with.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// New makes a server.
func New(c Config) *Server {
	c.BodyTime, c.Patience = cmp.Or(c.BodyTime, BodyTime), cmp.Or(c.Patience, Patience)
	s := &Server{conf: c, specs: c.Scheduler.Specs(), key: sha256.Sum256([]byte(c.Key)), started: time.Now(),
		schemas: schemas{tok: c.Tokenizer, compiled: map[string]*compiled{}, literals: map[string][]int32{}}}
	get := func(e endpoint) map[string]endpoint {
		return map[string]endpoint{http.MethodGet: e, http.MethodHead: e}
	}
	post := func(e endpoint) map[string]endpoint { return map[string]endpoint{http.MethodPost: e} }
	s.routes = map[string]map[string]endpoint{
		"/v1/completions":      post(s.completions),
		"/v1/chat/completions": post(s.chatCompletions),
		"/v1/responses":        post(s.responses),
		"/v1/models":           get(s.models),
		"/tokenize":            post(s.tokenize),
		"/detokenize":          post(s.detokenize),
		"/tokenizer_info":      get(s.tokenizerInfo),
		"/apply-template":      post(s.applyTemplate),
		"/health":              get(s.health),
		"/version":             get(s.version),
		"/metrics":             get(s.metrics),
	}
	return s
}

// ServeHTTP answers a request and logs it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rec := &recorder{ResponseWriter: w, patience: s.conf.Patience}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	e := &entry{}
	defer func() {
		s.held.Add(-e.held)
		s.schemas.release(e)
	}()
	// Also where nobody reads the body: net/http reads what is left of it before it answers.
	_ = http.NewResponseController(w).SetReadDeadline(start.Add(s.conf.BodyTime)) // not every ResponseWriter can
	r = r.WithContext(context.WithValue(r.Context(), entryKey{}, e))
	if err := s.answer(rec, r); err != nil {
		if rec.status == 0 {
			writeError(rec, err)
		}
		e.noteError(asAPI(err), s.conf.LogText)
	}
	// Whoever has no key writes little into the log.
	s.conf.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", append([]slog.Attr{
		slog.String("method", fmt.Sprintf("%.20s", r.Method)), slog.String("path", fmt.Sprintf("%.100s", r.URL.Path)), slog.Int("status", rec.status), slog.Duration("took", time.Since(start)),
	}, e.attrs...)...)
}

// answer finds the endpoint of a request whose client may ask.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) error {
	if s.conf.Local && !isLocal(r.Host) {
		e := invalid("", "the request is for %.200q, want localhost: start gollm serve with a key, or --no-auth, to be called by other names", r.Host)
		e.status = http.StatusForbidden
		return e
	}
	if s.allowOrigin(w, r) && r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	methods, ok := s.routes[r.URL.Path]
	if name, one := strings.CutPrefix(r.URL.Path, "/v1/models/"); one {
		methods, ok = map[string]endpoint{http.MethodGet: func(w http.ResponseWriter, _ *http.Request) error { return s.model(w, name) }}, true
	}
	if r.URL.Path != "/health" {
		if err := s.authorize(r); err != nil {
			return err
		}
	}
	if !ok {
		return notFound("there is nothing at %.200q", r.URL.Path)
	}
	e, ok := methods[r.Method]
	if !ok {
		err := notFound("%s takes no %.20s", r.URL.Path, r.Method)
		err.status = http.StatusMethodNotAllowed
		return err
	}
	return e(w, r)
}

// isLocal reports whether a Host header names this machine alone. The page of a website
// whose name was made to resolve to this machine has another one.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// notFound is an error of status 404.
func notFound(format string, args ...any) *apiError {
	e := invalid("", format, args...)
	e.status = http.StatusNotFound
	return e
}

// authorize wants the key, where there is one.
func (s *Server) authorize(r *http.Request) error {
	if s.conf.Key == "" {
		return nil
	}
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(key))
	if ok && subtle.ConstantTimeCompare(sum[:], s.key[:]) == 1 {
		return nil
	}
	e := invalid("", "the API key is missing or wrong; send it as Authorization: Bearer KEY").code("invalid_api_key")
	e.status = http.StatusUnauthorized
	return e
}

// allowOrigin lets a browser read the answer, where the page is of a named origin. It
// reports whether it is.
func (s *Server) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(s.conf.Origins, origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", "Authorization, *") // the openai package for browsers sends headers of its own
	return true
}

// read reads the body of a request into dst.
func (s *Server) read(w http.ResponseWriter, r *http.Request, dst any, ignored map[string][]string) error {
	b, err := s.body(w, r)
	if err != nil {
		return err
	}
	if s.conf.LogText {
		noteOf(r, "body", string(b))
	}
	if err := wellFormed(b); err != nil {
		return err
	}
	return decode(b, dst, ignored)
}

// noModel is the error of a request for another model.
func (s *Server) noModel(name string) error {
	e := notFound("the model %.200q is not here; %s is", name, s.conf.Model)
	return e.code("model_not_found")
}

// recorder remembers the status of an answer. Each write has patience to end.
type recorder struct {
	http.ResponseWriter
	status   int // 0: nothing is written yet
	patience time.Duration
}

// WriteHeader writes the header.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Now().Add(r.patience)) // not every ResponseWriter can
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// entry is what the log says of a request besides the line that all have.
type entry struct {
	attrs   []slog.Attr
	held    int64       // bytes of the body
	schemas []*compiled // that the request has
}

type entryKey struct{}

func (e *entry) note(key string, v any) { e.attrs = append(e.attrs, slog.Any(key, v)) }

// noteError notes what went wrong. The words of a refusal may be the client's own.
func (e *entry) noteError(err *apiError, text bool) {
	if text || err.Type == "server_error" {
		e.note("error", err.Message)
	}
}

// noteOf adds to what the log says of a request.
func noteOf(r *http.Request, key string, v any) { entryOf(r).note(key, v) }

// entryOf is the entry of a request.
func entryOf(r *http.Request) *entry { return entryFrom(r.Context()) }

// entryFrom is the entry of the request of a context.
func entryFrom(ctx context.Context) *entry {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		return e
	}
	return &entry{} // which nobody reads
}

// note notes the numbers of a request.
func (s *Server) note(r *http.Request, id string, u *usage, answers int) {
	noteOf(r, "id", id)
	noteOf(r, "attn", u.Gollm.Attn)
	noteOf(r, "answers", answers)
	noteOf(r, "prompt_tokens", u.Prompt)
	noteOf(r, "completion_tokens", u.Completion)
	noteOf(r, "cached_tokens", u.Details.Cached)
}

// newID is a name that no other answer has.
func newID(prefix string) string { return prefix + rand.Text() }
