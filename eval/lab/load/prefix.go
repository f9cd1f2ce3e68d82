package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// prefix is what is measured: a question behind a long document, then another one behind the
// same document, of which the prefix cache has all whole pages.
type prefix struct {
	Document int         `json:"document"` // tokens
	Question int         `json:"question"` // tokens
	Rows     []*reuseRow `json:"rows"`

	gollm, file string
	check       bool
	args        []string // more, of gollm serve
}

// reuseRow is an attention spec.
type reuseRow struct {
	Attn   string  `json:"attn"`
	Anew   float64 `json:"anew_ms"`  // until the first token, nothing cached
	Again  float64 `json:"again_ms"` // of the second question
	Cached int     `json:"cached_tokens"`
	Equal  *bool   `json:"equal,omitempty"` // the second answer is that of a server without the cache; nil: not asked
}

// prefixAnswer is the tokens of an answer: enough to see another one.
const prefixAnswer = 16

func runPrefix(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("prefix", flag.ExitOnError)
	var p prefix
	flags.StringVar(&p.gollm, "gollm", "bin/gollm", "the command")
	flags.StringVar(&p.file, "m", "", "the model (required)")
	flags.IntVar(&p.Document, "document", 32000, "tokens of the document")
	flags.IntVar(&p.Question, "question", 60, "tokens of a question")
	flags.BoolVar(&p.check, "check", false, "ask a server without the cache, too, and compare the answers")
	attn := flags.String("attn", "dense", "attention specs, with semicolons between")
	more := flags.String("args", "", "more arguments of gollm serve, with spaces between")
	out := flags.String("json", "", "a file for the figures")
	_ = flags.Parse(args) // which exits
	if p.file == "" {
		return errors.New("no model: name one with -m FILE")
	}
	if p.Document < 1 || p.Question < 1 {
		return fmt.Errorf("-document %d -question %d, want at least 1 of each", p.Document, p.Question)
	}
	p.args = strings.Fields(*more)
	for spec := range strings.SplitSeq(*attn, ";") {
		r := &reuseRow{Attn: strings.TrimSpace(spec)}
		p.Rows = append(p.Rows, r)
		if err := p.row(ctx, r); err != nil {
			return fmt.Errorf("--attn %s: %w", r.Attn, err)
		}
	}
	fmt.Print(p.table())
	if *out == "" {
		return nil
	}
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(*out, append(text, '\n'), 0o666)
}

// row measures a spec, and asks the second question of a server that caches nothing.
func (p *prefix) row(ctx context.Context, r *reuseRow) error {
	var first, again, alone cachedAnswer
	err := p.server(ctx, r.Attn, nil, func(url string) (err error) {
		if first, err = p.ask(ctx, url, 1); err != nil {
			return err
		}
		again, err = p.ask(ctx, url, 2)
		return err
	})
	if err != nil {
		return err
	}
	if first.cached != 0 {
		return fmt.Errorf("%d tokens of the first prompt were cached, want none", first.cached)
	}
	r.Anew, r.Again, r.Cached = milliseconds(first.ttft), milliseconds(again.ttft), again.cached
	if !p.check {
		return nil
	}
	err = p.server(ctx, r.Attn, []string{"--no-prefix-cache"}, func(url string) (err error) {
		alone, err = p.ask(ctx, url, 2)
		return err
	})
	equal := alone.text == again.text
	r.Equal = &equal
	return err
}

// server runs a server of one spec while do asks it. A short request before wakes the threads
// and reads the weights.
func (p *prefix) server(ctx context.Context, attn string, more []string, do func(url string) error) error {
	tokens := strconv.Itoa((p.Document + p.Question + prefixAnswer + 127) / 64 * 64)
	args := append([]string{"-m", p.file, "--attn", attn, "--slots", "1", "--ctx", tokens, "--cache", tokens}, more...)
	s, err := startGollm(ctx, p.gollm, "", append(args, p.args...)...)
	if err != nil {
		return err
	}
	var b bench
	if _, err = b.one(ctx, http.DefaultClient, s.url, rand.New(rand.NewPCG(3, 3)), 32, 4, time.Now()); err == nil {
		err = do(s.url)
	}
	return errors.Join(err, s.kill())
}

// cachedAnswer is an answer and how soon it began.
type cachedAnswer struct {
	text   string
	ttft   time.Duration
	cached int // tokens of the prompt
}

// ask asks a question behind the document, both of random tokens.
func (p *prefix) ask(ctx context.Context, url string, question uint64) (a cachedAnswer, err error) {
	ids := append(randomIDs(rand.New(rand.NewPCG(1, 0)), p.Document), randomIDs(rand.New(rand.NewPCG(2, question)), p.Question)...)
	start := time.Now()
	asked := ask{"/v1/completions", map[string]any{"prompt": ids, "max_tokens": prefixAnswer, "temperature": 0, "stream_options": map[string]any{"include_usage": true}}}
	err = asked.events(ctx, http.DefaultClient, url, true, func(e envelope) {
		if a.ttft == 0 {
			a.ttft = time.Since(start)
		}
		for _, c := range e.Choices {
			a.text += c.Text
		}
		a.cached = max(a.cached, e.Usage.Prompt.Cached)
	})
	return a, err
}

// randomIDs are n ids that every vocabulary has.
func randomIDs(rng *rand.Rand, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 3 + rng.IntN(200)
	}
	return ids
}

// table is the rows as Markdown.
func (p *prefix) table() string {
	var t strings.Builder
	fmt.Fprintf(&t, "First token behind %d tokens and a question of %d:\n\n| attention | anew, ms | again, ms | share | tokens cached | same answer |\n|---|---:|---:|---:|---:|---|\n", p.Document, p.Question)
	for _, r := range p.Rows {
		equal := "not asked"
		if r.Equal != nil {
			equal = map[bool]string{true: "yes", false: "no"}[*r.Equal]
		}
		fmt.Fprintf(&t, "| `%s` | %.0f | %.0f | %.3f | %d | %s |\n", r.Attn, r.Anew, r.Again, r.Again/r.Anew, r.Cached, equal)
	}
	return t.String()
}
