package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/tokenizer"
)

// form is how an endpoint writes answers.
type form interface {
	prefix() string            // of the ids of answers
	object(stream bool) string // the name of what is answered
	choice(index int, pieces []written, finish *string, which part) any
}

// part says what of an answer a choice is.
type part int

// The parts.
const (
	whole part = iota // not streamed
	first             // of a stream
	later
)

// written is a piece with where it is in the text.
type written struct {
	serve.Piece
	offset int // in characters
}

// scribe puts the text of one answer together, that of an echoed prompt included.
type scribe struct {
	tok    *tokenizer.Tokenizer
	prompt *tokenizer.Stream // nil before the first token and behind the prompt
	chars  int
	begun  bool // of a stream: the client has a part
	ended  bool // its numbers are in the usage
}

// write is a piece as it is written.
func (s *scribe) write(p serve.Piece) written {
	if p.Prompt && s.prompt == nil {
		s.prompt = s.tok.Stream(tokenizer.DecodeOptions{ShowSpecial: true})
		if p.ID != s.tok.BOS() {
			p.Text = s.prompt.Next(p.ID)
		}
	} else if p.Prompt {
		p.Text = s.prompt.Next(p.ID)
	} else if s.prompt != nil {
		p.Text = s.prompt.Flush() + p.Text
		s.prompt = nil
	}
	w := written{p, s.chars}
	s.chars += utf8.RuneCountInString(p.Text)
	return w
}

// flush is what an echoed prompt without an answer ends with.
func (s *scribe) flush() []written {
	if s.prompt == nil {
		return nil
	}
	return []written{s.write(serve.Piece{})}
}

// envelope is an answer, or an event of a stream.
type envelope struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
}

// usage is what an answer cost.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Gollm gollmUsage `json:"gollm"`
}

// gollmUsage is what others do not say. Of several answers the times are the longest.
type gollmUsage struct {
	Attn      string     `json:"attn"`
	Density   *float64   `json:"density"` // as in readUsage, of the whole request
	KRead     *float64   `json:"k_read"`
	VRead     *float64   `json:"v_read"`
	Prefill   *readUsage `json:"prefill"`             // of it, the prompt
	Decode    *readUsage `json:"decode"`              // and the steps
	Uncounted string     `json:"uncounted,omitempty"` // why some of them are null
	Cached    int        `json:"cached_tokens"`
	Preempted int        `json:"preempted"` // times that a sequence lost its pages
	Wait      float64    `json:"wait_ms"`   // until the prompt was begun
	PrefillMS float64    `json:"prefill_ms"`
	DecodeMS  float64    `json:"decode_ms"`

	prefill, decode               engine.Reads
	prefillUnknown, decodeUnknown bool
}

// whyUncounted is why some of usage is null though attention has read something.
const whyUncounted = "the device replays captured steps, in which counting what sparse attention reads would cost speed"

// readUsage is the share of the past that attention has read, 0 to 1; null where nothing was read, or it is not
// counted.
type readUsage struct {
	Density float64 `json:"density"` // of the pairs of query and key
	KRead   float64 `json:"k_read"`  // of the stored rows, to select included
	VRead   float64 `json:"v_read"`
}

// newReadUsage is nil where nothing was to be read, or what was is unknown.
func newReadUsage(r engine.Reads, unknown bool) *readUsage {
	if r.Pairs == 0 || unknown {
		return nil
	}
	past := float64(r.Past)
	return &readUsage{float64(r.Selected) / float64(r.Pairs), float64(r.K) / past, float64(r.V) / past}
}

// reads adds what an answer has read.
func (g *gollmUsage) reads(r serve.Result) {
	g.prefillUnknown, g.decodeUnknown = g.prefillUnknown || r.PrefillUnknown, g.decodeUnknown || r.DecodeUnknown
	g.prefill.Add(r.PrefillReads)
	g.decode.Add(r.DecodeReads)
	all := g.prefill
	all.Add(g.decode)
	g.Prefill, g.Decode = newReadUsage(g.prefill, g.prefillUnknown), newReadUsage(g.decode, g.decodeUnknown)
	g.Density, g.KRead, g.VRead = nil, nil, nil
	if u := newReadUsage(all, g.prefillUnknown || g.decodeUnknown); u != nil {
		g.Density, g.KRead, g.VRead = &u.Density, &u.KRead, &u.VRead
	}
	if g.prefillUnknown || g.decodeUnknown {
		g.Uncounted = whyUncounted
	}
}

// add counts an answer; again says that its prompt was counted with another one.
func (u *usage) add(r serve.Result, again bool) {
	if !again {
		u.Prompt += r.Prompt
		u.Details.Cached += r.Cached
	}
	u.Completion += r.Generated
	u.Total = u.Prompt + u.Completion
	g := &u.Gollm
	g.reads(r)
	g.Cached, g.Preempted = u.Details.Cached, g.Preempted+r.Preempted
	for _, t := range []struct {
		longest *float64
		took    time.Duration
	}{{&g.Wait, r.Waited}, {&g.PrefillMS, r.Prefill}, {&g.DecodeMS, r.Decode}} {
		*t.longest = max(*t.longest, float64(t.took.Microseconds())/1000)
	}
}

// exchange is a request of a client while it is answered.
type exchange struct {
	*Server
	form
	w       http.ResponseWriter
	r       *http.Request
	p       *params
	head    envelope
	scribes []scribe
	usage   usage
}

// run answers with the answers of all requests.
func (s *Server) run(w http.ResponseWriter, r *http.Request, p *params, f form, all []serve.Request) error {
	if err := s.constrain(r.Context(), "response_format", p.ResponseFormat, all); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context()) // a stream whose reader is gone leaves before its request is done
	defer cancel()
	answers, err := s.conf.Scheduler.Submit(ctx, all...)
	if err != nil {
		return err
	}
	x := &exchange{Server: s, form: f, w: w, r: r, p: p, scribes: make([]scribe, len(all))}
	x.head = envelope{ID: newID(f.prefix()), Object: f.object(p.Stream), Created: time.Now().Unix(), Model: s.conf.Model, Choices: []any{}}
	x.usage.Gollm.Attn = s.conf.Attn[all[0].Attn]
	for i := range x.scribes {
		x.scribes[i].tok = s.conf.Tokenizer
	}
	defer func() { s.note(r, x.head.ID, &x.usage, len(all)) }()
	if p.Stream {
		err = x.stream(ctx, answers)
	} else {
		err = x.collect(answers)
	}
	if err == nil || r.Context().Err() == nil {
		return err
	}
	cancel()
	x.count(answers)
	return errGone
}

// count waits for the answers that nobody reads any more, which end within a step.
func (x *exchange) count(answers []*serve.Answer) {
	for i, a := range answers {
		await(a)
		if !x.scribes[i].ended {
			_, _ = x.finish(i, a) // there is nobody to tell
		}
	}
}

// await reads an answer to its end.
func await(a *serve.Answer) {
	for range a.Pieces() {
	}
}

// collect answers once everything is written.
func (x *exchange) collect(answers []*serve.Answer) error {
	for i, a := range answers {
		var pieces []written
		for p := range a.Pieces() {
			pieces = append(pieces, x.scribes[i].write(p))
		}
		pieces = append(pieces, x.scribes[i].flush()...)
		finish, err := x.finish(i, a)
		if err != nil {
			return err
		}
		x.head.Choices = append(x.head.Choices, x.choice(i, pieces, &finish, whole))
	}
	x.head.Usage = &x.usage
	writeJSON(x.w, http.StatusOK, x.head)
	return nil
}

// finish counts an answer that has ended, and says why it has.
func (x *exchange) finish(i int, a *serve.Answer) (string, error) {
	res, err := a.Result()
	x.scribes[i].ended = true
	x.usage.add(res, i%value(x.p.N, 1) != 0)
	return finishName(res, err)
}

// finishName is OpenAI's name for why an answer ended.
func finishName(res serve.Result, err error) (string, error) {
	switch {
	case err != nil:
		return "", err
	case res.Stop == engine.StopCancelled:
		return "", serve.ErrClosed // or the client is gone, and run says so
	case res.Stop == engine.StopEnd || res.Stop == engine.StopString:
		return "stop", nil
	}
	return "length", nil
}

// event is news of one of the answers of a stream.
type event struct {
	index int
	piece *serve.Piece // nil: the answer has ended
}

// stream writes the pieces of all answers as they come, until nobody reads, which is the error.
func (x *exchange) stream(ctx context.Context, answers []*serve.Answer) error {
	x.w.Header().Set("Content-Type", "text/event-stream")
	x.w.Header().Set("Cache-Control", "no-cache")
	events := make(chan event)
	for i, a := range answers {
		go tell(ctx, events, i, a)
	}
	for left := len(answers); left > 0; {
		select {
		case e := <-events:
			if e.piece == nil {
				left--
			}
			if !x.pass(e, answers[e.index]) {
				return x.r.Context().Err() // nil: the client was told of an error
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if o := x.p.StreamOptions; o != nil && o.IncludeUsage {
		x.head.Choices, x.head.Usage = []any{}, &x.usage
		if !x.send(x.head) {
			return nil
		}
	}
	sendData(x.w, "", "[DONE]")
	return nil
}

// pass writes news of an answer, and reports whether the stream goes on.
func (x *exchange) pass(e event, a *serve.Answer) bool {
	which, scribe := later, &x.scribes[e.index]
	if !scribe.begun {
		scribe.begun, which = true, first
	}
	var pieces []written
	var finish *string
	if e.piece != nil {
		p := scribe.write(*e.piece)
		if p.Text == "" && p.Log == nil && !p.Prompt && which == later {
			return true // its text comes with a later piece
		}
		pieces = []written{p}
	} else {
		pieces = scribe.flush()
		why, err := x.finish(e.index, a)
		if err != nil {
			x.send(errorBody{asAPI(err)})
			return false
		}
		finish = &why
	}
	news := x.choice(e.index, pieces, finish, which)
	if news == nil {
		return true
	}
	x.head.Choices = []any{news}
	return x.send(x.head)
}

// tell passes on the pieces of an answer and its end.
func tell(ctx context.Context, events chan<- event, i int, a *serve.Answer) {
	send := func(e event) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for p := range a.Pieces() {
		if !send(event{i, &p}) {
			return
		}
	}
	send(event{index: i})
}

// send writes an event, and reports whether somebody reads.
func (x *exchange) send(v any) bool { return sendEvent(x.w, "", v) }

// sendEvent writes an event, which has a name unless that is empty, and reports whether
// somebody reads.
func sendEvent(w http.ResponseWriter, name string, v any) bool {
	b, err := json.Marshal(v)
	return err == nil && sendData(w, name, string(b))
}

// sendData writes the data of an event.
func sendData(w http.ResponseWriter, name, data string) bool {
	if name != "" {
		data = name + "\ndata: " + data
		name = "event"
	}
	_, err := fmt.Fprintf(w, "%s: %s\n\n", or(name, "data"), data)
	return err == nil && http.NewResponseController(w).Flush() == nil
}
