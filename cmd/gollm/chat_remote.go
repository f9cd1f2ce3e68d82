package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/tokenizer/chat"
)

// remote is a model of a server that speaks OpenAI's API.
type remote struct {
	base   string // of its endpoints, with /v1 or what stands there instead
	key    string // "" is none
	model  string
	fields map[string]any // of every request: what the command line says
	seed   *uint64        // nil: the server's
}

// remoteFlags are the flags of chat that mean something where a server runs the model, and
// the field of a request that each is, "" for none.
var remoteFlags = map[string]string{
	"url": "", "api-key-file": "", "model": "", "system": "", "history": "", "stop": "stop", "seed": "", "verbose": "",
	"tokens": "max_tokens", "temp": "temperature", "top-k": "top_k", "top-p": "top_p", "min-p": "min_p", "repeat-penalty": "repeat_penalty",
	"presence-penalty": "presence_penalty", "frequency-penalty": "frequency_penalty", "attn": "attn",
}

// newRemote is the server that the flags name.
func (c *chatFlags) newRemote(cmd *cobra.Command) (*remote, error) {
	base, err := baseURL(c.url)
	if err != nil {
		return nil, err
	}
	r := &remote{base: base, model: c.model.Path, fields: map[string]any{}}
	values := map[string]any{
		"stop": c.stop, "max_tokens": c.limit, "temperature": c.sampling.Temperature, "top_k": c.sampling.TopK, "top_p": c.sampling.TopP, "min_p": c.sampling.MinP,
		"repeat_penalty": c.sampling.RepeatPenalty, "presence_penalty": c.sampling.PresencePenalty, "frequency_penalty": c.sampling.FrequencyPenalty, "attn": c.cache.Attn,
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		field, known := remoteFlags[f.Name]
		if !known && cmd.LocalFlags().Lookup(f.Name) != nil {
			err = usage.Errorf("--%s does nothing with --url: the server has it", f.Name)
		} else if field != "" && (field != "max_tokens" || c.limit > 0) {
			r.fields[field] = values[field]
		}
	})
	if err == nil && cmd.Flags().Changed("seed") {
		r.seed = &c.sampling.Seed
	}
	if err == nil {
		r.key, err = readKey(c.keyFile)
	}
	return r, err
}

// baseURL is a URL without the slash at its end, and with /v1 where it has no path.
func baseURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", usage.Errorf("--url %s, want the address of a server, such as http://127.0.0.1:8080/v1", text)
	}
	if u.User != nil {
		return "", usage.Errorf("--url has a password in it; --api-key-file names a file with the key")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if u.Path == "" {
		u.Path = "/v1"
	}
	return u.String(), nil
}

// maxReply bounds a line or a body that a server sends, in bytes.
const maxReply = 4 << 20

// listTimeout is how long a server may take to say which models it has.
const listTimeout = 10 * time.Second

// do sends a request, with a JSON body unless that is nil.
func (r *remote) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var text []byte
	var err error
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if r.key != "" {
		request.Header.Set("Authorization", "Bearer "+r.key)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the server does not answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(response.Body, maxReply)) // what there is
		return nil, fmt.Errorf("the server says %s: %s", response.Status, errorText(b))
	}
	return response, nil
}

// errorText is the message of an error as OpenAI's servers write it, or the body.
func errorText(body []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return strings.TrimSpace(string(body))
}

// choose asks which models the server has, and takes the one that was named, or the only one.
func (r *remote) choose(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	response, err := r.do(ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return fmt.Errorf("--url %s: %w", r.base, err)
	}
	defer response.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxReply)).Decode(&list); err != nil || len(list.Data) == 0 {
		return fmt.Errorf("--url %s: the server lists no models at /models: is this the address of an OpenAI endpoint?", r.base)
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	switch {
	case r.model == "" && len(names) == 1:
		r.model = names[0]
	case r.model == "":
		return usage.Errorf("the server has %d models, name one with -m: %s", len(names), strings.Join(names, ", "))
	case !slices.Contains(names, r.model):
		return fmt.Errorf("-m %s: the server has no such model, but %s", r.model, strings.Join(names, ", "))
	}
	return nil
}

// reply is what a server says of an answer that it has written.
type reply struct {
	text   string
	finish string
	usage  struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Gollm      struct {
			Attn    string   `json:"attn"`
			Density *float64 `json:"density"`
		} `json:"gollm"`
	}
}

// answer streams the answer to a conversation; regens changes the seed.
func (r *remote) answer(ctx context.Context, messages []chat.Message, regens uint64, emit func(string)) (reply, error) {
	body := map[string]any{"model": r.model, "stream": true, "stream_options": map[string]bool{"include_usage": true}}
	for name, v := range r.fields {
		body[name] = v
	}
	if r.seed != nil {
		body["seed"] = *r.seed + regens
	}
	list := make([]savedMessage, len(messages))
	for i, m := range messages {
		list[i] = savedMessage{Role: m.Role, Content: m.Content}
	}
	body["messages"] = list
	response, err := r.do(ctx, http.MethodPost, "/chat/completions", body)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	return readReply(response.Body, emit)
}

// readReply reads the events of an answer.
func readReply(body io.Reader, emit func(string)) (all reply, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxReply)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		if data = strings.TrimSpace(data); data == "[DONE]" {
			return all, nil
		}
		var e struct {
			Error   any             `json:"error"`
			Usage   json.RawMessage `json:"usage"`
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
				Finish string `json:"finish_reason"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return all, fmt.Errorf("the server sends an event that is not JSON: %.80s", data)
		}
		if e.Error != nil {
			return all, fmt.Errorf("the server says: %s", errorText([]byte(data)))
		}
		if e.Usage != nil {
			_ = json.Unmarshal(e.Usage, &all.usage) // other servers have other fields, which are shown as 0
		}
		for _, c := range e.Choices {
			all.text += c.Delta.Content
			if c.Finish != "" {
				all.finish = c.Finish
			}
			emit(c.Delta.Content)
		}
	}
	if err = lines.Err(); err == nil && all.finish == "" {
		err = errors.New("the server ends in the middle of an answer")
	}
	return all, err
}

// ask lets the server answer a message.
func (s *session) ask(ctx context.Context, text string) error {
	ctx, cancel := s.stoppable(ctx)
	defer cancel()
	wait := console.NewBar(s.errs, s.log, "waiting", 1, "")
	defer wait.Stop()
	w := &answerWriter{out: s.out, trim: true, first: wait.Stop, cancel: cancel, start: time.Now()}
	r, err := s.remote.answer(ctx, openmodel.Conversation(s.system, s.messages, text), s.regens, func(text string) {
		if text != "" {
			w.emit(engine.Piece{Text: text})
		}
	})
	res := engine.Result{Text: r.text, Stop: engine.StopEnd}
	switch {
	case w.err != nil:
		return w.err
	case ctx.Err() != nil:
		res.Stop = engine.StopCancelled
	case err != nil:
		if r.text != "" {
			_, _ = io.WriteString(s.out, "\n") // the error goes on a line of its own
		}
		return s.refuse(err)
	case r.finish == "length":
		res.Stop = engine.StopLength
	}
	s.last = r.line(w.ttft, time.Since(w.start))
	return s.finish(text, res)
}

// line is the cost of an answer for people; first is the time to its first token, and took
// to its end.
func (r *reply) line(first, took time.Duration) string {
	parts := []string{console.Plural(r.usage.Prompt, "prompt token"), "first token after " + console.TimeText(first),
		console.Plural(r.usage.Completion, "token") + console.RateText(float64(r.usage.Completion-1)/(took-first).Seconds())}
	if g := r.usage.Gollm; g.Attn != "" {
		parts = append(parts, "attention "+g.Attn)
		if g.Density != nil {
			parts = append(parts, fmt.Sprintf("density %.3g", *g.Density))
		}
	}
	return strings.Join(parts, ", ")
}
