package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// soak is many requests to one server.
type soak struct {
	url      string
	client   *http.Client
	n        int      // requests
	clients  int      // at once
	want     []answer // of the different requests, alone
	out      io.Writer
	progress []int // numbers of requests behind which the memory is reported

	next, right, cancelled atomic.Int64
	after                  metrics // once everything is answered
}

func runSoak(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("soak", flag.ExitOnError)
	gollm := flags.String("gollm", "bin/gollm", "the command")
	model := flags.String("m", "testdata/demo.gguf", "the model")
	s := soak{out: os.Stdout}
	flags.IntVar(&s.n, "n", 10000, "requests")
	flags.IntVar(&s.clients, "clients", 64, "requests at once")
	different := flags.Int("different", 500, "different requests among them")
	_ = flags.Parse(args) // which exits
	program, err := filepath.Abs(*gollm)
	if err != nil {
		return err
	}
	file, err := filepath.Abs(*model)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "gollm-load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	base := []string{"-m", file, "--template", "llama2", "--ctx", "512"}
	for _, spec := range specs {
		base = append(base, "--attn", spec)
	}
	if s.want, err = references(ctx, program, folder, base, *different); err != nil {
		return err
	}
	// The cache holds a few of the sequences that the slots would take.
	p, err := startGollm(ctx, program, folder, append(base, "--slots", "16", "--cache", "512", "--queue", "4096", "--max-stall", "20ms")...)
	if err != nil {
		return err
	}
	s.url = p.url
	if err := cmp.Or(s.run(ctx), s.shown()); err != nil {
		return errors.Join(err, p.kill())
	}
	return s.killed(ctx, p, folder, func() (*process, error) {
		return startGollm(ctx, program, folder, append(base, "--slots", "4", "--cache", "4k")...)
	})
}

// references are the answers of requests that are alone: one after the other, in a server of one slot
// without a prefix cache, none of them streamed.
func references(ctx context.Context, program, folder string, args []string, n int) ([]answer, error) {
	p, err := startGollm(ctx, program, folder, append(args, "--slots", "1", "--no-prefix-cache")...)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	want, err := alone(ctx, http.DefaultClient, p.url, n)
	if err != nil {
		return nil, errors.Join(err, p.kill())
	}
	fmt.Printf("%d requests alone: %.0f s\n", n, time.Since(start).Seconds())
	return want, p.stop()
}

// alone asks one request after the other.
func alone(ctx context.Context, client *http.Client, url string, n int) ([]answer, error) {
	want := make([]answer, n)
	for i := range want {
		var err error
		if want[i], err = mixed(i).send(ctx, client, url, false); err != nil {
			return nil, fmt.Errorf("request %d alone: %w", i, err)
		}
	}
	return want, nil
}

// run asks everything, and wants every answer to be right and everything to be back.
func (s *soak) run(ctx context.Context) error {
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: s.clients, DisableCompression: true}}
	s.progress = []int{s.n / 10, s.n / 2, s.n}
	before, err := atRest(ctx, s.url)
	if err != nil {
		return err
	}
	start := time.Now()
	var all sync.WaitGroup
	errs := make([]error, s.clients)
	for c := range errs {
		all.Go(func() { errs[c] = s.ask(ctx) })
	}
	all.Wait()
	s.client.CloseIdleConnections()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := idle(ctx, s.url, before)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%d requests by %d clients in %.0f s: %d right, %d cancelled, none wrong; %.0f preemptions, %.0f tokens of prompts cached\n",
		s.n, s.clients, took.Seconds(), s.right.Load(), s.cancelled.Load(), after[preemptions], after[cacheHits])
	fmt.Fprintf(s.out, "afterwards %.0f goroutines (%.0f before), %.0f open files (%.0f), no page in use\n",
		after[goroutines], before[goroutines], after[files], before[files])
	s.after = after
	return nil
}

// shown reports what a run does not show: it was not the load that it is to be.
func (s *soak) shown() error {
	switch {
	case s.after[preemptions] == 0:
		return errors.New("nothing was preempted: this shows nothing")
	case s.after[cacheHits] == 0:
		return errors.New("nothing was cached: this shows nothing")
	case s.cancelled.Load() == 0:
		return errors.New("nothing was cancelled: this shows nothing")
	}
	return nil
}

// ask is one client: requests until there are no more.
func (s *soak) ask(ctx context.Context) error {
	for {
		i := int(s.next.Add(1)) - 1
		if i >= s.n {
			return nil
		}
		if err := s.one(ctx, i); err != nil {
			return err
		}
		for _, mark := range s.progress {
			if i+1 == mark {
				m, err := scrape(ctx, s.url)
				if err != nil {
					return err
				}
				fmt.Fprintf(s.out, "after %d requests: %.1f MiB resident, %.0f goroutines\n", mark, m[resident]/(1<<20), m[goroutines])
			}
		}
	}
}

// one is request i: a tenth is cancelled after a random time, every other one is streamed.
func (s *soak) one(ctx context.Context, i int) error {
	rng := rand.New(rand.NewPCG(uint64(i), 17))
	which := rng.IntN(len(s.want))
	doomed := rng.IntN(10) == 0
	if doomed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(300))*time.Millisecond)
		defer cancel()
	}
	got, err := mixed(which).send(ctx, s.client, s.url, rng.IntN(2) == 0)
	switch {
	case doomed && ctx.Err() != nil:
		s.cancelled.Add(1)
	case err != nil:
		return fmt.Errorf("request %d, number %d of the mix: %w", i, which, err)
	case got.String() != s.want[which].String():
		return fmt.Errorf("request %d, number %d of the mix (%v):\n got %v\nwant %v", i, which, mixed(which).body, got, s.want[which])
	default:
		s.right.Add(1)
	}
	return nil
}

// killed ends the server by SIGKILL in the middle of requests and starts it again: there is
// nothing to repair, no file is left, and answers are right at once.
func (s *soak) killed(ctx context.Context, p *process, folder string, again func() (*process, error)) error {
	var all sync.WaitGroup
	begun := make(chan struct{}, s.clients)
	for i := range s.clients {
		all.Go(func() {
			begun <- struct{}{}
			_, _ = mixed(i%len(s.want)).send(ctx, s.client, s.url, true) // the server goes away
		})
	}
	<-begun
	time.Sleep(200 * time.Millisecond) // some of them run
	if err := p.kill(); err != nil {
		return err
	}
	all.Wait()
	left, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("the killed server leaves %s behind", left[0].Name())
	}
	start := time.Now()
	if p, err = again(); err != nil {
		return err
	}
	ready := time.Since(start)
	for i := range min(20, len(s.want)) {
		got, err := mixed(i).send(ctx, http.DefaultClient, p.url, i%2 == 0)
		if err != nil || got.String() != s.want[i].String() {
			return errors.Join(fmt.Errorf("after a kill request %d: %v, want %v: %w", i, got, s.want[i], err), p.kill())
		}
	}
	http.DefaultClient.CloseIdleConnections()
	fmt.Fprintf(s.out, "killed among %d requests and started again: ready in %.0f ms, no file left, answers right\n", s.clients, float64(ready.Microseconds())/1000)
	return p.stop()
}
