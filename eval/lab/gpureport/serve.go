package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// served is the name of the part that asks gollm serve.
const served = "serve"

// clients are how many sequences there are at once, in a row each.
func (r *report) clients() []int {
	if r.small {
		return []int{1, 3}
	}
	return []int{1, 4, 16, 64}
}

// serveTokens are the tokens of a prompt and of an answer.
func (r *report) serveTokens() (prompt, answer int) {
	if r.small {
		return 8, 3
	}
	return 512, 128
}

// serveRows are three rows for each number of clients.
func (r *report) serveRows() (rows []*row) {
	prompt, answer := r.serveTokens()
	for _, n := range r.clients() {
		how := fmt.Sprintf("Llama-3.1-8B F16, gollm serve, %d tokens in, %d out, clients of eval/lab/load that ask at the same moment", prompt, answer)
		rows = append(rows,
			&row{What: fmt.Sprintf("%d clients: tokens of answers a second", n), How: how + ", prompts included"},
			&row{What: fmt.Sprintf("%d clients: tokens a second between first and last token", n), How: how + ", prompts of others included; limit: a step of so many sequences"},
			&row{What: fmt.Sprintf("%d clients: time to the first token, median", n), How: how})
	}
	return rows
}

// loadRow is what is taken of the JSON of load bench.
type loadRow struct {
	Clients int `json:"clients"`
	Gollm   []struct {
		TokS  float64    `json:"tok_s"`
		TTFT  [3]float64 `json:"ttft_ms"`
		Token float64    `json:"token_ms"`
	} `json:"gollm"`
}

// serve asks gollm serve as many clients do, and holds the steps against the limit.
func (r *report) serve(ctx context.Context, rows []*row) error {
	m := modelSpec{"llama-3.1-8b", "f16", 0, false}
	loads, err := r.load(ctx, m)
	if err != nil {
		return err
	}
	if len(loads) != len(r.clients()) {
		return fmt.Errorf("load bench has %d rows, want %d", len(loads), len(r.clients()))
	}
	for i, l := range loads {
		f := l.Gollm[0]
		rows[3*i].set(f.TokS, "tok/s")
		rows[3*i+1].set(1e3*float64(l.Clients)/f.Token, "tok/s")
		rows[3*i+2].set(f.TTFT[0], "ms").Note = fmt.Sprintf("90 %%: %s, 99 %%: %s", number(f.TTFT[1], "ms"), number(f.TTFT[2], "ms"))
	}
	for i, l := range loads {
		prompt, answer := r.serveTokens()
		b, err := r.bench(ctx, m, append(r.once(), "--prefill", "0", "--decode", strconv.Itoa(prompt+answer/2), "--batch", strconv.Itoa(l.Clients))...)
		if err != nil {
			return err
		}
		w, x := rows[3*i+1], b.Rows[0]
		w.Limit, w.Share, w.Of = x.LimitTokS, w.Value/x.LimitTokS, "the roofline of a step"
		w.Note = fmt.Sprintf("gollm bench has %s", number(x.TokS, "tok/s"))
	}
	return nil
}

// load runs load bench.
func (r *report) load(ctx context.Context, m modelSpec) ([]loadRow, error) {
	var clients []string
	for _, n := range r.clients() {
		clients = append(clients, strconv.Itoa(n))
	}
	prompt, answer := r.serveTokens()
	var b struct{ Rows []loadRow }
	if err := r.loads(ctx, m, &b, "bench", "-clients", strings.Join(clients, ","), "-prompt", strconv.Itoa(prompt), "-answer", strconv.Itoa(answer)); err != nil {
		return nil, err
	}
	for _, l := range b.Rows {
		if len(l.Gollm) == 0 || !(l.Gollm[0].TokS > 0 && l.Gollm[0].Token > 0) {
			return nil, fmt.Errorf("load bench has no figures of %d clients", l.Clients)
		}
	}
	return b.Rows, nil
}

// loads runs a command of load over a model, which ends its server when it is interrupted, and
// decodes its figures.
func (r *report) loads(ctx context.Context, m modelSpec, figures any, command string, args ...string) error {
	path, err := r.model(ctx, m)
	if err != nil {
		return err
	}
	file := filepath.Join(r.folder, command+".json")
	args = append([]string{command, "-gollm", r.bin.gollm, "-m", path, "-args", "--device " + r.device, "-json", file}, args...)
	c := exec.CommandContext(ctx, r.bin.load, args...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("load %s: %w: %s", command, err, lastLine(out))
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, figures); err != nil {
		return fmt.Errorf("load %s: %w", command, err)
	}
	return nil
}

// prefixCache is the name of the part that asks a second question behind one document.
const prefixCache = "prefix cache"

// prefixSpecs are its attention specs, a row each, all of methods whose prompts keep their pages.
var prefixSpecs = []string{"dense", sketch}

// document is the tokens of the document.
func (r *report) document() int {
	if r.small {
		return 130
	}
	return 32000
}

// prefixRows are a row for each spec.
func (r *report) prefixRows() (rows []*row) {
	how := fmt.Sprintf("Llama-3.1-8B F16, gollm serve, a question of 60 tokens behind a document of %d, then another one: the second time to the first token over the first", r.document())
	for _, attn := range prefixSpecs {
		rows = append(rows, &row{What: attn + " first token of a cached document", How: how, Aim: atMost(0.1)})
	}
	return rows
}

// prefix measures them by load prefix.
func (r *report) prefix(ctx context.Context, rows []*row) error {
	var x struct {
		Rows []struct {
			Anew   float64 `json:"anew_ms"`
			Again  float64 `json:"again_ms"`
			Cached int     `json:"cached_tokens"`
			Equal  bool    `json:"equal"`
		} `json:"rows"`
	}
	err := r.loads(ctx, modelSpec{"llama-3.1-8b", "f16", 0, false}, &x, "prefix", "-document", strconv.Itoa(r.document()), "-attn", strings.Join(prefixSpecs, ";"), "-check")
	if err != nil {
		return err
	}
	if len(x.Rows) != len(rows) {
		return fmt.Errorf("load prefix has %d rows, want %d", len(x.Rows), len(rows))
	}
	for i, c := range x.Rows {
		if c.Anew <= 0 {
			return fmt.Errorf("load prefix has no time of %s", prefixSpecs[i])
		}
		note := fmt.Sprintf("%s, then %s; %d tokens cached", number(c.Anew, "ms"), number(c.Again, "ms"), c.Cached)
		if !c.Equal {
			note += "; the answer is another one than without the cache"
		}
		rows[i].set(c.Again/c.Anew, "times").Note = note
	}
	return nil
}

// lastLine is the last line of an output.
func lastLine(out []byte) string {
	text := strings.TrimSpace(string(out))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
