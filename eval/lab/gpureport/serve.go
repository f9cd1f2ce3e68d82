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

// load runs load bench, which ends its server when it is interrupted.
func (r *report) load(ctx context.Context, m modelSpec) ([]loadRow, error) {
	path, err := r.model(ctx, m)
	if err != nil {
		return nil, err
	}
	var clients []string
	for _, n := range r.clients() {
		clients = append(clients, strconv.Itoa(n))
	}
	prompt, answer := r.serveTokens()
	figures := filepath.Join(r.folder, "serve.json")
	c := exec.CommandContext(ctx, r.bin.load, "bench", "-gollm", r.bin.gollm, "-m", path, "-clients", strings.Join(clients, ","),
		"-prompt", strconv.Itoa(prompt), "-answer", strconv.Itoa(answer), "-args", "--device "+r.device, "-json", figures)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("load bench: %w: %s", err, lastLine(out))
	}
	text, err := os.ReadFile(figures)
	if err != nil {
		return nil, err
	}
	var b struct{ Rows []loadRow }
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("load bench: %w", err)
	}
	for _, l := range b.Rows {
		if len(l.Gollm) == 0 || !(l.Gollm[0].TokS > 0 && l.Gollm[0].Token > 0) {
			return nil, fmt.Errorf("load bench has no figures of %d clients", l.Clients)
		}
	}
	return b.Rows, nil
}

// lastLine is the last line of an output.
func lastLine(out []byte) string {
	text := strings.TrimSpace(string(out))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
