package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// bench is what is measured: clients that each ask for one answer, all at the same moment.
type bench struct {
	Model   string `json:"model"`
	Prompt  int    `json:"prompt"` // tokens
	Answer  int    `json:"answer"` // tokens
	Threads int    `json:"threads"`
	Commit  string `json:"commit"`
	Rows    []*row `json:"rows"`

	gollm, peer, file string
	args              []string // more, of gollm serve
	rounds            int
}

// row is a number of clients, and what each server did in every round.
type row struct {
	Clients int      `json:"clients"`
	Gollm   []figure `json:"gollm"`
	Peer    []figure `json:"peer,omitempty"`
}

// figure is one round.
type figure struct {
	TokS   float64    `json:"tok_s"`         // tokens of answers over the time from the first request to the last answer
	TTFT   [3]float64 `json:"ttft_ms"`       // until the first token: the median, nine tenths, 99 of 100
	Token  float64    `json:"token_ms"`      // between two tokens of an answer, the median of answers
	Tokens int        `json:"answer_tokens"` // of all answers
	CPU    float64    `json:"cpu_s"`         // seconds of processors that the server took, start and end included
}

func runBench(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	var b bench
	flags.StringVar(&b.gollm, "gollm", "bin/gollm", "the command")
	flags.StringVar(&b.peer, "peer", "", "llama-server, to measure in turns with gollm; empty is gollm alone")
	flags.StringVar(&b.file, "m", "", "the model (required)")
	flags.IntVar(&b.Prompt, "prompt", 512, "tokens of a prompt")
	flags.IntVar(&b.Answer, "answer", 128, "tokens of an answer")
	flags.IntVar(&b.Threads, "threads", 2, "threads of each server")
	flags.IntVar(&b.rounds, "rounds", 1, "rounds")
	clients := flags.String("clients", "1,4,16,64", "sequences at once, with commas between")
	more := flags.String("args", "", "more arguments of gollm serve, with spaces between")
	out := flags.String("json", "", "a file for the figures")
	into := flags.String("write", "", "a Markdown file that takes the table, between <!-- bench-serve --> and <!-- /bench-serve -->")
	_ = flags.Parse(args) // which exits
	if b.file == "" {
		return errors.New("no model: name one with -m FILE")
	}
	for text := range strings.SplitSeq(*clients, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1024 {
			return fmt.Errorf("-clients %s, want numbers from 1 to 1024", *clients)
		}
		b.Rows = append(b.Rows, &row{Clients: n})
	}
	b.Model, b.args = filepath.Base(b.file), strings.Fields(*more)
	about := b.about(ctx)
	if err := b.run(ctx); err != nil {
		return err
	}
	table := about + "\n\n" + b.table()
	fmt.Println(table)
	if *out != "" {
		text, err := json.MarshalIndent(b, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*out, append(text, '\n'), 0o666); err != nil {
			return err
		}
	}
	if *into == "" {
		return nil
	}
	return putInto(*into, table)
}

// run measures every row in rounds, gollm and its peer in turns.
func (b *bench) run(ctx context.Context) error {
	for round := range b.rounds {
		for _, r := range b.Rows {
			sides := []func() error{func() error { return b.side(ctx, &r.Gollm, r.Clients, round, b.startGollm) }}
			if b.peer != "" {
				sides = append(sides, func() error { return b.side(ctx, &r.Peer, r.Clients, round, b.startPeer) })
			}
			if round%2 == 1 {
				slices.Reverse(sides)
			}
			for _, side := range sides {
				if err := side(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// context is the tokens of a sequence, with some to spare.
func (b *bench) context() int { return (b.Prompt + b.Answer + 127) / 64 * 64 }

// startGollm starts gollm serve with as many slots as there are clients.
func (b *bench) startGollm(ctx context.Context, clients int) (*process, error) {
	return startGollm(ctx, b.gollm, "", append([]string{"-m", b.file, "-t", strconv.Itoa(b.Threads), "--slots", strconv.Itoa(clients),
		"--ctx", strconv.Itoa(b.context()), "--cache", strconv.Itoa(b.context() * clients)}, b.args...)...)
}

// startPeer starts llama-server likewise: continuous batching is its default.
func (b *bench) startPeer(ctx context.Context, clients int) (*process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, err
	}
	threads := strconv.Itoa(b.Threads)
	return startPeer(ctx, b.peer, port, "-m", b.file, "-t", threads, "-tb", threads, "-np", strconv.Itoa(clients),
		"-c", strconv.Itoa(b.context()*clients), "--cache-ram", "0", "-ngl", "0")
}

// side measures one server with a number of clients.
func (b *bench) side(ctx context.Context, into *[]figure, clients, round int, start func(context.Context, int) (*process, error)) error {
	p, err := start(ctx, clients)
	if err != nil {
		return err
	}
	f, err := b.measure(ctx, p.url, clients, round)
	if err != nil {
		return errors.Join(err, p.kill())
	}
	if err := p.kill(); err != nil {
		return err
	}
	f.CPU = (p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()).Seconds()
	*into = append(*into, f)
	fmt.Fprintf(os.Stderr, "round %d, %d clients, %s: %.1f tok/s, first token after %.0f ms, %.1f ms between tokens, %.1f s of processors\n",
		round+1, clients, filepath.Base(p.cmd.Path), f.TokS, f.TTFT[0], f.Token, f.CPU)
	return nil
}

// timed is one answer.
type timed struct {
	first, last time.Duration // since all clients began
	tokens      int
}

// measure lets all clients ask at once. A short request before wakes the threads and reads
// the weights.
func (b *bench) measure(ctx context.Context, url string, clients, round int) (f figure, err error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}}
	defer client.CloseIdleConnections()
	if _, err := b.one(ctx, client, url, rand.New(rand.NewPCG(1, 1)), 32, 4, time.Now()); err != nil {
		return f, err
	}
	answers, errs := make([]timed, clients), make([]error, clients)
	var all sync.WaitGroup
	start := time.Now()
	for i := range answers {
		all.Go(func() {
			answers[i], errs[i] = b.one(ctx, client, url, rand.New(rand.NewPCG(uint64(round), uint64(i))), b.Prompt, b.Answer, start)
		})
	}
	all.Wait()
	return figureOf(answers), firstOf(errs)
}

// one asks for an answer to random tokens, which no cache has.
func (b *bench) one(ctx context.Context, client *http.Client, url string, rng *rand.Rand, prompt, answer int, start time.Time) (t timed, err error) {
	a := ask{"/v1/completions", map[string]any{"prompt": randomIDs(rng, prompt), "max_tokens": answer, "temperature": 0, "stream_options": map[string]any{"include_usage": true}}}
	err = a.events(ctx, client, url, true, func(e envelope) {
		now := time.Since(start)
		if t.first == 0 {
			t.first = now
		}
		t.last, t.tokens = now, max(t.tokens, e.Usage.Completion)
	})
	if err == nil && t.tokens == 0 {
		err = errors.New("the server does not say how many tokens the answer has")
	}
	return t, err
}

// figureOf is what the answers of a round come to.
func figureOf(answers []timed) (f figure) {
	var first, token []float64
	var last time.Duration
	for _, a := range answers {
		f.Tokens, last = f.Tokens+a.tokens, max(last, a.last)
		first = append(first, milliseconds(a.first))
		token = append(token, milliseconds(a.last-a.first)/float64(max(a.tokens-1, 1)))
	}
	f.TokS = float64(f.Tokens) / max(last.Seconds(), 1e-9)
	f.TTFT = [3]float64{quantile(first, 0.5), quantile(first, 0.9), quantile(first, 0.99)}
	f.Token = quantile(token, 0.5)
	return f
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantile is the smallest of some numbers that a share q of them does not exceed.
func quantile(x []float64, q float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[max(0, int(float64(len(x))*q+0.999999)-1)]
}

// median is a figure of the rounds.
func median(of []figure, x func(figure) float64) float64 {
	var all []float64
	for _, f := range of {
		all = append(all, x(f))
	}
	return quantile(all, 0.5)
}

// table is the rows as Markdown.
func (b *bench) table() string {
	var t strings.Builder
	t.WriteString("| clients | gollm tok/s | llama.cpp tok/s | ratio | gollm first token, ms (50 %, 90 %, 99 %) | llama.cpp's | gollm ms between tokens | llama.cpp's |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	speed := func(f figure) float64 { return f.TokS }
	for _, r := range b.Rows {
		peer, ratio, first, token := "-", "-", "-", "-"
		if len(r.Peer) > 0 {
			peer, first, token = speedText(r.Peer), firstText(r.Peer), fmt.Sprintf("%.0f", median(r.Peer, func(f figure) float64 { return f.Token }))
			ratio = fmt.Sprintf("%.2f", median(r.Gollm, speed)/median(r.Peer, speed))
		}
		fmt.Fprintf(&t, "| %d | %s | %s | %s | %s | %s | %.0f | %s |\n", r.Clients, speedText(r.Gollm), peer, ratio, firstText(r.Gollm), first,
			median(r.Gollm, func(f figure) float64 { return f.Token }), token)
	}
	return t.String()
}

// speedText is the median of rounds, and their range.
func speedText(of []figure) string {
	low, high := of[0].TokS, of[0].TokS
	for _, f := range of {
		low, high = min(low, f.TokS), max(high, f.TokS)
	}
	return fmt.Sprintf("%.1f (%.1f-%.1f)", median(of, func(f figure) float64 { return f.TokS }), low, high)
}

// firstText is the medians of the times to the first token.
func firstText(of []figure) string {
	var parts []string
	for i := range of[0].TTFT {
		parts = append(parts, fmt.Sprintf("%.0f", median(of, func(f figure) float64 { return f.TTFT[i] })))
	}
	return strings.Join(parts, ", ")
}

// about says when, where and with what the table was made.
func (b *bench) about(ctx context.Context) string {
	version, _ := exec.CommandContext(ctx, b.gollm, "version").Output() // whether it runs, startGollm finds out
	b.Commit, _, _ = strings.Cut(string(version), "\n")
	load := "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	about := fmt.Sprintf("%s, %s, %d threads, %s; %d tokens in, %d out, %d rounds in turns, median (range); load average before: %s.",
		time.Now().Format(time.DateOnly), cmp.Or(b.Commit, "gollm"), b.Threads, b.Model, b.Prompt, b.Answer, b.rounds, load)
	if len(b.args) > 0 {
		about += " gollm serve " + strings.Join(b.args, " ") + "."
	}
	return about
}

// putInto replaces what stands between two marks of a file.
func putInto(path, table string) error {
	const begin, end = "<!-- bench-serve -->\n", "<!-- /bench-serve -->"
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no %s and %s", path, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(path, []byte(before+begin+table+end+after), 0o666)
}
