package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// badClients is a server and what its connections are tried with.
type badClients struct {
	url, address string
	idle         int // connections that are open at once
	out          io.Writer
}

func runConnections(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("connections", flag.ExitOnError)
	gollm := flags.String("gollm", "bin/gollm", "the command")
	model := flags.String("m", "testdata/demo.gguf", "the model")
	b := badClients{out: os.Stdout}
	flags.IntVar(&b.idle, "idle", 10000, "connections that are idle at once, fewer where there are not so many files")
	_ = flags.Parse(args) // which exits
	program, err := filepath.Abs(*gollm)
	if err != nil {
		return err
	}
	b.idle = min(b.idle, maxFiles()-200)
	p, err := startGollm(ctx, program, "", "-m", *model, "--ctx", "2k", "--max-connections", fmt.Sprint(b.idle+1000))
	if err != nil {
		return err
	}
	b.url, b.address = p.url, strings.TrimPrefix(p.url, "http://")
	if err := b.run(ctx); err != nil {
		return errors.Join(err, p.kill())
	}
	return p.stop()
}

// run tries everything; behind each attempt the server must be as before.
func (b *badClients) run(ctx context.Context) error {
	before, err := atRest(ctx, b.url)
	if err != nil {
		return err
	}
	for _, try := range []struct {
		name string
		run  func(context.Context) (string, error)
	}{
		{"no HTTP", b.wrongHTTP}, {"large bodies", b.largeBodies}, {"half-closed connections", b.halfClosed}, {"slow headers", b.slowHeaders},
		{"slow bodies", b.slowBodies}, {"readers that do not read", b.deaf}, {"idle connections", b.idleConnections},
	} {
		start := time.Now()
		what, err := try.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", try.name, err)
		}
		http.DefaultClient.CloseIdleConnections()
		m, err := idle(ctx, b.url, before)
		if err != nil {
			return fmt.Errorf("behind %s: %w", try.name, err)
		}
		fmt.Fprintf(b.out, "%-24s  %s; %.0f s, then %.0f MiB resident, %.0f goroutines, %.0f files\n",
			try.name, what, time.Since(start).Seconds(), m[resident]/(1<<20), m[goroutines], m[files])
	}
	return nil
}

// dial opens a connection and writes a text.
func (b *badClients) dial(text string) (*net.TCPConn, error) {
	c, err := net.Dial("tcp", b.address)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c.(*net.TCPConn), nil
}

// post is the text of a request.
func post(body string) string {
	return fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// endless is a body whose answer is long.
const endless = `{"prompt":"the river","max_tokens":1500,"stream":true,"logprobs":20,"logit_bias":{"0":-100,"1":-100}}`

// statusOf reads the code of an answer, within a time; 0 where the connection ends instead.
func statusOf(c net.Conn, limit time.Duration) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	var late net.Error
	switch {
	case errors.As(err, &late) && late.Timeout():
		return 0, fmt.Errorf("no answer within %v", limit)
	case err != nil:
		return 0, nil
	}
	return r.StatusCode, r.Body.Close()
}

// wrongHTTP sends what is no request.
func (b *badClients) wrongHTTP(context.Context) (string, error) {
	body := `{"prompt":"a","max_tokens":1}`
	texts := []struct {
		text   string
		status int
	}{
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400}, {"GET\r\n\r\n", 400}, {"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 505},
		{"GET /health HTTP/1.1\r\n\r\n", 400}, {"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400}, {"GET /health HTTP/1.1\r\nHost: localhost\r\nA B: c\r\n\r\n", 400},
		{"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", 431},
		{"GET /" + strings.Repeat("x", 100<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431},
		{strings.Replace(post(body), "Content-Length", "Transfer-Encoding: chunked\r\nContent-Length", 1) + "\r\n", 400},
		{strings.Replace(post(body), "Content-Length: ", "Content-Length: -", 1), 400}, {strings.Replace(post(body), "Content-Length", "Transfer-Encoding: gzip\r\nX", 1), 501},
		{strings.Replace(post(body), "Host: localhost", "Host: evil.example", 1), 403}, {post(body), 200},
	}
	for _, x := range texts {
		c, err := net.Dial("tcp", b.address)
		if err != nil {
			return "", err
		}
		_, _ = io.WriteString(c, x.text) // the server may close before it has read all
		status, err := statusOf(c, 20*time.Second)
		if err = errors.Join(err, c.Close()); err != nil || status != x.status {
			return "", fmt.Errorf("%.300q: status %d, want %d, %w", x.text, status, x.status, err)
		}
	}
	return fmt.Sprintf("%d texts, each its code", len(texts)), nil
}

// largeBodies sends bodies of 10 MB, which are read, and of 17 MiB, which are not.
func (b *badClients) largeBodies(ctx context.Context) (string, error) {
	peak := metrics{}
	for size, status := range map[int]int{10_000_000: http.StatusBadRequest, 17 << 20: http.StatusRequestEntityTooLarge} {
		body := []byte(`{"prompt":"` + strings.Repeat("the river ", size/10) + `"}`)
		var all sync.WaitGroup
		errs := make([]error, 16)
		for i := range errs {
			all.Go(func() {
				r, err := http.Post(b.url+"/v1/completions", "application/json", bytes.NewReader(body))
				if err != nil {
					errs[i] = err
					return
				}
				if errs[i] = r.Body.Close(); r.StatusCode != status {
					errs[i] = fmt.Errorf("a body of %d bytes: %s, want %d", len(body), r.Status, status)
				}
			})
		}
		all.Wait()
		if err := firstOf(errs); err != nil {
			return "", err
		}
		m, err := scrape(ctx, b.url)
		if err != nil {
			return "", err
		}
		peak[resident] = max(peak[resident], m[resident])
	}
	return fmt.Sprintf("16 of 10 MB at once: 400, the prompt is too long; 16 of 17 MiB: 413; %.0f MiB resident behind them", peak[resident]/(1<<20)), nil
}

// halfClosed sends requests and says that nothing more will come.
func (b *badClients) halfClosed(context.Context) (string, error) {
	const n = 100
	for range n {
		c, err := b.dial(post(endless))
		if err != nil {
			return "", err
		}
		defer c.Close()
		if err := c.CloseWrite(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d in the middle of requests", n), nil
}

// slowHeaders sends headers without an end.
func (b *badClients) slowHeaders(ctx context.Context) (string, error) {
	return b.slow(ctx, "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", 20*time.Second, 0)
}

// slowBodies sends bodies without an end.
func (b *badClients) slowBodies(ctx context.Context) (string, error) {
	return b.slow(ctx, strings.Replace(post(endless), "Content-Length: ", "Content-Length: 9", 1), 80*time.Second, http.StatusRequestTimeout)
}

// slow begins many requests and adds a byte a second to each, until the server answers them
// with a status, or closes them.
func (b *badClients) slow(ctx context.Context, text string, limit time.Duration, want int) (string, error) {
	const n = 200
	start := time.Now()
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range errs {
		c, err := b.dial(text)
		if err != nil {
			return "", err
		}
		all.Go(func() {
			ended := context.AfterFunc(ctx, func() { c.Close() })
			defer ended()
			defer c.Close()
			stop := make(chan struct{})
			go func() {
				for tick := time.NewTicker(time.Second); ; {
					select {
					case <-stop:
						tick.Stop()
						return
					case <-tick.C:
						_, _ = io.WriteString(c, "x") // fails once the server has closed it
					}
				}
			}()
			status, err := statusOf(c, limit)
			close(stop)
			if errs[i] = err; err == nil && status != want {
				errs[i] = fmt.Errorf("status %d, want %d (0: closed)", status, want)
			}
		})
	}
	if err := b.healthy(); err != nil {
		return "", err
	}
	all.Wait()
	return fmt.Sprintf("%d, a byte a second: ended after %.0f s with status %d (0: closed)", n, time.Since(start).Seconds(), want), firstOf(errs)
}

// firstOf is the first error of many, with how many there are.
func firstOf(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d failed, the first one: %w", len(errs), errs[0])
}

// deaf asks for more than the buffers of a connection hold, and reads nothing.
func (b *badClients) deaf(ctx context.Context) (string, error) {
	const n = 32
	for range n {
		c, err := b.dial("")
		if err != nil {
			return "", err
		}
		defer c.Close()
		if err := c.SetReadBuffer(4096); err != nil {
			return "", err
		}
		if _, err := io.WriteString(c, post(endless)); err != nil {
			return "", err
		}
	}
	start := time.Now()
	for time.Since(start) < 2*time.Minute {
		m, err := scrape(ctx, b.url)
		if err != nil {
			return "", err
		}
		if m[running]+m[waiting] == 0 {
			return fmt.Sprintf("%d long streams: given up or written after %.0f s", n, time.Since(start).Seconds()), b.healthy()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return "", errors.New("requests of deaf clients still run after two minutes")
}

// healthy asks for a completion.
func (b *badClients) healthy() error {
	r, err := http.Post(b.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","max_tokens":1}`))
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("a good request gets %s", r.Status), r.Body.Close())
	}
	return r.Body.Close()
}

// idleConnections keeps connections open that have had an answer, and asks beside them.
func (b *badClients) idleConnections(ctx context.Context) (string, error) {
	all := make([]*net.TCPConn, 0, b.idle)
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	for range b.idle {
		c, err := b.dial("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if err != nil {
			return "", err
		}
		all = append(all, c)
		if status, err := statusOf(c, 20*time.Second); err != nil || status != http.StatusOK {
			return "", fmt.Errorf("connection %d: status %d, %w", len(all), status, err)
		}
	}
	m, err := scrape(ctx, b.url)
	if err != nil {
		return "", err
	}
	if m[files] < float64(b.idle) {
		return "", fmt.Errorf("only %.0f files are open with %d connections", m[files], b.idle)
	}
	return fmt.Sprintf("%d open at once, %.0f MiB resident with them, others answered", len(all), m[resident]/(1<<20)), b.healthy()
}
