package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server as a process of its own.
type process struct {
	cmd  *exec.Cmd
	url  string // without /v1
	tail chan string
}

// listening finds the address in the log of gollm serve.
var listening = regexp.MustCompile(`msg=listening url=(\S+)/v1`)

// startGollm starts gollm serve, on a free port where the arguments name none, in a folder
// of its own.
func startGollm(ctx context.Context, program, folder string, args ...string) (*process, error) {
	p, errs, err := startProcess(ctx, program, folder, append([]string{"serve", "--port", "0"}, args...)...)
	if err != nil {
		return nil, err
	}
	var said strings.Builder
	lines := bufio.NewReader(errs)
	for p.url == "" {
		line, err := lines.ReadString('\n')
		if m := listening.FindStringSubmatch(line); m != nil {
			p.url = m[1]
		}
		if said.WriteString(line); err != nil {
			return nil, errors.Join(fmt.Errorf("%s does not listen: %s", program, said.String()), p.cmd.Wait())
		}
	}
	go p.drain(lines)
	return p, nil
}

// startPeer starts a server that does not say when it listens, and waits for its /health.
func startPeer(ctx context.Context, program string, port int, args ...string) (*process, error) {
	p, errs, err := startProcess(ctx, program, "", append([]string{"--host", "127.0.0.1", "--port", strconv.Itoa(port)}, args...)...)
	if err != nil {
		return nil, err
	}
	go p.drain(errs)
	p.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	for range 600 {
		r, err := http.Get(p.url + "/health")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return p, nil
			}
		}
		select {
		case said := <-p.tail:
			return nil, errors.Join(fmt.Errorf("%s has ended: %s", program, said), p.cmd.Wait())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, errors.Join(fmt.Errorf("%s is not healthy after a minute", program), p.kill())
}

// startProcess starts a program, and returns what it writes to stderr.
func startProcess(ctx context.Context, program, folder string, args ...string) (*process, io.Reader, error) {
	p := &process{cmd: exec.CommandContext(ctx, program, args...), tail: make(chan string, 1)}
	p.cmd.Dir = folder
	errs, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, nil, err
	}
	return p, errs, p.cmd.Start()
}

// drain reads what a process logs to its end, and keeps the last of it.
func (p *process) drain(r io.Reader) {
	const keep = 4000 // bytes
	var last []byte
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Read(buffer)
		last = append(last, buffer[:n]...)
		last = last[max(0, len(last)-keep):]
		if err != nil {
			p.tail <- string(last)
			return
		}
	}
}

// stop ends a process by SIGTERM, which must end with code 0.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	said := <-p.tail
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("the server ended with %w: %s", err, said)
	}
	return nil
}

// kill ends a process by SIGKILL.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-p.tail
	_ = p.cmd.Wait() // says that it was killed
	return nil
}

// metrics are the values of a scrape, of a name with several labels their sum.
type metrics map[string]float64

// The metrics that say whether everything is back.
const (
	running     = "vllm:num_requests_running"
	waiting     = "vllm:num_requests_waiting"
	cacheUse    = "vllm:kv_cache_usage_perc"
	preemptions = "vllm:num_preemptions_total"
	cacheHits   = "vllm:prefix_cache_hits_total"
	goroutines  = "go_goroutines"
	resident    = "process_resident_memory_bytes"
	files       = "process_open_fds"
)

// scrape asks a server for its metrics, over a connection that is closed behind it.
func scrape(ctx context.Context, url string) (metrics, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %s", answer.Status)
	}
	all := metrics{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		name, _, _ := strings.Cut(line[:i], "{")
		x, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("/metrics: %w", err)
		}
		all[name] += x
	}
	for _, name := range []string{running, waiting, cacheUse, preemptions, goroutines, resident, files} {
		if _, ok := all[name]; !ok {
			return nil, fmt.Errorf("/metrics has no %s", name)
		}
	}
	return all, lines.Err()
}

// atRest is what a server says that has nothing to do: of some scrapes the largest values,
// since a scrape counts some of its own goroutines.
func atRest(ctx context.Context, url string) (metrics, error) {
	largest := metrics{}
	for range 5 {
		m, err := scrape(ctx, url)
		if err != nil {
			return nil, err
		}
		for name, x := range m {
			largest[name] = max(largest[name], x)
		}
	}
	return largest, nil
}

// idle waits until a server has nothing to do and no more goroutines and open files than
// before, and returns what it says then.
func idle(ctx context.Context, url string, before metrics) (m metrics, err error) {
	for range 200 {
		if m, err = scrape(ctx, url); err != nil {
			return nil, err
		}
		if m[running]+m[waiting]+m[cacheUse] == 0 && m[goroutines] <= before[goroutines] && m[files] <= before[files] {
			return m, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return m, fmt.Errorf("after ten seconds %v requests run, %v wait, the cache is used to %.3f, %v goroutines (%v before), %v open files (%v before)",
		m[running], m[waiting], m[cacheUse], m[goroutines], before[goroutines], m[files], before[files])
}
