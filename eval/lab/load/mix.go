package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
)

// specs are the attention specs of a mix: rows that are planned alone, state per page, state
// of a sequence, random numbers.
var specs = []string{"dense", "streaming(sink=2,window=40)", "prefill=dense decode=quest(budget=32)", "h2o(hh=20,recent=16)", "santa(samples=8)"}

// ask is a request.
type ask struct {
	path string // /v1/completions, or the one of conversations
	body map[string]any
}

// words are what prompts are made of.
var words = strings.Fields(`the a pass key is hidden in this text remember it one two three four five six seven eight nine
	there once was small river behind old house where nobody could find what they had lost green red blue and then again`)

// prose is n words.
func prose(rng *rand.Rand, n int) string {
	text := make([]string, n)
	for i := range text {
		text[i] = words[rng.IntN(len(words))]
	}
	return strings.Join(text, " ")
}

// mixed is request i of a mix: lengths, specs, sampling, stop strings, log-probabilities,
// schemas, conversations, several answers, streams. A third shares a beginning.
func mixed(i int) ask {
	rng := rand.New(rand.NewPCG(uint64(i), 11))
	prompt := prose(rng, 1+rng.IntN(60))
	if i%3 == 0 {
		prompt = prose(rand.New(rand.NewPCG(uint64(i%4), 5)), 70) + " " + prompt
	}
	a := ask{"/v1/completions", map[string]any{"prompt": prompt, "max_tokens": rng.IntN(40), "attn": specs[i%len(specs)], "seed": i, "temperature": 0}}
	b := a.body
	if i%6 == 1 { // grows into other pages
		b["max_tokens"] = 130
	}
	if i%2 == 1 {
		b["temperature"], b["top_p"], b["repeat_penalty"] = 1.2, 0.9, 1.1
	}
	switch rng.IntN(8) {
	case 0:
		b["logprobs"] = rng.IntN(4)
	case 1:
		b["stop"] = []string{" is", "re"}
	case 2:
		b["n"] = 2
	case 3:
		b["logprobs"], b["echo"] = 1, true
	case 4:
		b["response_format"] = map[string]any{"type": "json_object"}
	case 5:
		b["logit_bias"] = map[string]any{"1": -100, "300": 2}
	case 6:
		a.path = "/v1/chat/completions"
		delete(b, "prompt")
		b["messages"] = []any{map[string]any{"role": "user", "content": prompt}}
	}
	return a
}

// answer is the choices of an answer, whether it was streamed or not.
type answer []choice

// choice is one of them.
type choice struct {
	Text, Finish string
	Logs         []float64 // of tokens; 0 for the first one of a prompt, which has none
}

// String is an answer for people, and to compare: equal texts are equal answers.
func (a answer) String() string {
	b, _ := json.Marshal(a) // strings and numbers that came out of JSON
	return string(b)
}

// statusError is an answer that is none.
type statusError struct {
	status int
	body   string
}

func (e statusError) Error() string { return fmt.Sprintf("status %d: %.300s", e.status, e.body) }

// envelope is an answer, or an event of a stream.
type envelope struct {
	Choices []struct {
		Index          int
		Text           string
		Message, Delta struct{ Content string }
		Finish         string `json:"finish_reason"`
		Logprobs       struct {
			Tokens []*float64 `json:"token_logprobs"`
		}
	}
	Error *struct{ Message string }
	Usage struct {
		Completion int `json:"completion_tokens"`
		Prompt     struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// add adds the choices of an envelope.
func (a *answer) add(e envelope) {
	for _, c := range e.Choices {
		for len(*a) <= c.Index {
			*a = append(*a, choice{})
		}
		to := &(*a)[c.Index]
		to.Text += c.Text + c.Message.Content + c.Delta.Content
		to.Finish += c.Finish
		for _, x := range c.Logprobs.Tokens {
			if x == nil {
				x = new(float64)
			}
			to.Logs = append(to.Logs, *x)
		}
	}
}

// send asks a server and reads the answer.
func (a ask) send(ctx context.Context, client *http.Client, url string, stream bool) (answer, error) {
	var got answer
	err := a.events(ctx, client, url, stream, func(e envelope) { got.add(e) })
	return got, err
}

// events asks a server and hands over the answer, or the events of its stream.
func (a ask) events(ctx context.Context, client *http.Client, url string, stream bool, take func(envelope)) error {
	a.body["stream"] = stream
	body, err := json.Marshal(a.body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+a.path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return statusError{res.StatusCode, string(text)}
	}
	if stream {
		return readEvents(res.Body, take)
	}
	var e envelope
	if err := json.NewDecoder(res.Body).Decode(&e); err != nil {
		return err
	}
	take(e)
	return nil
}

// readEvents hands over the events of a stream, which must end as one.
func readEvents(r io.Reader, take func(envelope)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			return nil
		}
		var e envelope
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		if e.Error != nil {
			return errors.New(e.Error.Message)
		}
		take(e)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}
