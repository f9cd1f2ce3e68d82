package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/tokenizer"
)

// defaultTokens is how many tokens /v1/completions writes where nobody says.
const defaultTokens = 16

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	params
	Prompt   prompts `json:"prompt"`
	Echo     bool    `json:"echo"`
	Logprobs *int    `json:"logprobs"`
}

// ignoredCompletions are fields that change nothing here, besides ignoredParams.
var ignoredCompletions = with(ignoredParams, map[string][]string{"add_special_tokens": {"true"}})

// prompts is a string, a list of token ids, or a list of either.
type prompts []prompt

// prompt is a text or token ids.
type prompt struct {
	text string
	ids  []int32 // nil: a text
}

// UnmarshalJSON reads any of the four forms.
func (p *prompts) UnmarshalJSON(b []byte) error {
	var one prompt
	if one.read(b) {
		*p = prompts{one}
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(b, &list) != nil {
		return invalid("prompt", "prompt is neither a string, nor a list of token ids, nor a list of these")
	}
	for i, item := range list {
		if !one.read(item) {
			return invalid("prompt", "prompt %d of the list is neither a string nor a list of token ids", i)
		}
		*p = append(*p, one)
	}
	return nil
}

// read reads a text or a list of ids that is not empty.
func (p *prompt) read(b []byte) bool {
	*p = prompt{}
	if string(b) == "null" {
		return false
	}
	if json.Unmarshal(b, &p.text) == nil {
		return true
	}
	return json.Unmarshal(b, (*tokenIDs)(&p.ids)) == nil && len(p.ids) > 0
}

// tokenIDs is a list of token ids.
type tokenIDs []int32

// UnmarshalJSON refuses null among the ids, which encoding/json reads as 0.
func (t *tokenIDs) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*[]int32)(t)); err != nil {
		return err
	}
	if len(*t) > 0 && bytes.Contains(b, []byte("null")) { // a list of numbers has these letters nowhere else
		return invalid("tokens", "null is no token id")
	}
	return nil
}

// encode is the tokens of a prompt. A text gets the beginning-of-text token where the
// model wants it and the text does not have it.
func (p prompt) encode(tok *tokenizer.Tokenizer) []int32 {
	if p.ids != nil {
		return p.ids
	}
	return withBOS(tok, tok.Encode(p.text, tokenizer.EncodeOptions{ParseSpecial: true}))
}

// withBOS adds the beginning-of-text token where the model wants it and it is not there.
func withBOS(tok *tokenizer.Tokenizer, ids []int32) []int32 {
	if !tok.AddsBOS() || len(ids) > 0 && ids[0] == tok.BOS() {
		return ids
	}
	return append([]int32{tok.BOS()}, ids...)
}

// completions answers /v1/completions.
func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	var c completionRequest
	if err := s.read(w, r, &c, ignoredCompletions); err != nil {
		return err
	}
	all, err := s.completionRequests(&c)
	if err != nil {
		return err
	}
	return s.run(w, r, &c.params, &completionForm{s: s, top: c.Logprobs, ids: c.TokensAsIDs}, all)
}

// completionRequests are the requests of all prompts and choices, in the order of their
// index.
func (s *Server) completionRequests(c *completionRequest) ([]serve.Request, error) {
	base, err := s.request(&c.params)
	if err != nil {
		return nil, err
	}
	n := value(c.N, 1)
	switch {
	case len(c.Prompt) == 0:
		return nil, invalid("prompt", "there is no prompt")
	case len(c.Prompt)*n > maxChoices:
		return nil, invalid("n", "%d prompts and n %d, want at most %d answers", len(c.Prompt), n, maxChoices)
	}
	if err := between("logprobs", c.Logprobs, 0, maxTop); err != nil {
		return nil, err
	}
	base.Echo, base.Logprobs, base.Top = c.Echo, c.Logprobs != nil, value(c.Logprobs, 0)
	var all []serve.Request
	for _, p := range c.Prompt {
		base.Prompt = p.encode(s.conf.Tokenizer)
		base.MaxTokens = s.answerLen(len(base.Prompt), c.MaxTokens, defaultTokens)
		all = append(all, choices(base, n)...)
	}
	return all, nil
}

// completionForm is the form of the answers of /v1/completions.
type completionForm struct {
	s   *Server
	top *int // nil: no log-probabilities
	ids bool // tokens are named by their ids
}

// completionChoice is one answer, or a part of it in a stream.
type completionChoice struct {
	Text         string              `json:"text"`
	Index        int                 `json:"index"`
	Logprobs     *completionLogprobs `json:"logprobs"`
	FinishReason *string             `json:"finish_reason"`
}

// completionLogprobs are the tokens of a text and how likely they were.
type completionLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float64           `json:"token_logprobs"` // null for the first token of a prompt
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"` // in characters of the text
}

func (f *completionForm) prefix() string { return "cmpl-" }

func (f *completionForm) object(bool) string { return "text_completion" }

// choice is a part of an answer.
func (f *completionForm) choice(index int, pieces []written, finish *string, _ part) any {
	c := completionChoice{Index: index, FinishReason: finish}
	if f.top != nil {
		c.Logprobs = &completionLogprobs{Tokens: []string{}, TokenLogprobs: []*float64{}, TopLogprobs: []map[string]float64{}, TextOffset: []int{}}
	}
	var text strings.Builder
	for _, p := range pieces {
		text.WriteString(p.Text)
		if p.Token && f.top != nil {
			f.add(c.Logprobs, p)
		}
	}
	c.Text = text.String()
	return c
}

// add adds a token.
func (f *completionForm) add(l *completionLogprobs, p written) {
	tok := f.s.conf.Tokenizer
	name := nameOf(tok, p.ID, f.ids)
	l.Tokens, l.TextOffset = append(l.Tokens, name), append(l.TextOffset, p.offset)
	if p.Log == nil {
		l.TokenLogprobs, l.TopLogprobs = append(l.TokenLogprobs, nil), append(l.TopLogprobs, nil)
		return
	}
	top := map[string]float64{}
	for _, t := range p.Log.Top {
		if name := nameOf(tok, t.ID, f.ids); lookup(top, name) == nil { // the likeliest of a name
			top[name] = finite(t.Value)
		}
	}
	x := finite(p.Log.Value)
	top[name] = max(x, value(lookup(top, name), x))
	l.TokenLogprobs, l.TopLogprobs = append(l.TokenLogprobs, &x), append(l.TopLogprobs, top)
}

// lookup is a value of a map, nil where there is none.
func lookup(m map[string]float64, key string) *float64 {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}
