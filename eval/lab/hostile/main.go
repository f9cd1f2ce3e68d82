// Command hostile feeds gollm what an enemy would: GGUF files with wrong fields, specs,
// chat templates, arrays of NumPy and lines of JSON, as many as a time allows.
//
//	go run ./eval/lab/hostile -for 10m            # every part, the time divided among them
//	go run ./eval/lab/hostile -part gguf -for 10m # one part
//	go run ./eval/lab/hostile -headers            # the most expensive headers of 64 MiB
//
// A GGUF file is changed field by field, so that many still load; what loads makes two
// tokens. An execution is found again by its number: -part gguf -seed 1 -only 4711. One
// that panics is counted and its input is written to a file; one that takes more than
// five seconds ends the program. The exit code is then 1.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// hang is how long an execution may take.
const hang = 5 * time.Second

// part is one kind of input.
type part struct {
	name string
	// start prepares what the executions of one worker share.
	start func() (execution, error)
}

// execution makes the input of a generator of random numbers and feeds it; result is one
// of few words for what became of it. Input may be nil when there was none yet.
type execution func(rng *rand.Rand) (input []byte, result string)

// parts are all kinds, by name.
var parts = []part{{"gguf", startModels}, {"jsonl", startLines}, {"npy", startArrays}, {"parquet", startTables}, {"request", startRequests}, {"spec", startSpecs}, {"template", startTemplates}}

func main() {
	name := flag.String("part", "", "gguf, jsonl, npy, parquet, request, spec or template; all where it is left out")
	length := flag.Duration("for", time.Minute, "how long, all parts together")
	limit := flag.Int64("n", 0, "the number of executions of a part, where the time is not over before; 0 is no limit")
	seed := flag.Uint64("seed", 1, "of the inputs")
	only := flag.Int64("only", -1, "the number of the one execution to repeat; its input is written to a file")
	workers := flag.Int("workers", runtime.NumCPU(), "executions at the same time")
	headers := flag.Bool("headers", false, "load the most expensive headers, each in a process of its own")
	header := flag.String("header", "", "load this one of them here")
	flag.Parse()
	var err error
	switch {
	case *headers:
		err = loadHeaders(os.Stdout)
	case *header != "":
		err = loadHeader(os.Stdout, *header)
	default:
		err = runParts(os.Stdout, *name, campaign{seed: *seed, only: *only, workers: *workers, length: *length, max: *limit})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

// campaign says which executions there are.
type campaign struct {
	seed    uint64
	only    int64 // the one execution, -1 for all
	workers int
	length  time.Duration
	max     int64 // executions of a part, 0 for as many as the time allows
}

// runParts runs one part or all and prints a line for each.
func runParts(out io.Writer, name string, c campaign) error {
	asked := parts
	if name != "" {
		asked = slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.name != name })
	}
	if len(asked) == 0 || c.only >= 0 && len(asked) > 1 {
		return fmt.Errorf("part %q, want one of gguf, jsonl, npy, parquet, request, spec, template", name)
	}
	c.length /= time.Duration(len(asked))
	failed := int64(0)
	for _, p := range asked {
		t, err := c.run(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintln(out, t.text(p.name))
		failed += t.failures
	}
	if failed > 0 {
		return fmt.Errorf("%d executions failed", failed)
	}
	return nil
}

// counts is what became of the executions of a part.
type counts struct {
	mu         sync.Mutex
	executions int64
	failures   int64
	results    map[string]int64
	slowest    time.Duration
	slowestAt  int64
	took       time.Duration
	cores      time.Duration // of processors, which other programs may have had
}

// text is the counts on one line.
func (t *counts) text(name string) string {
	var results []string
	for r := range t.results {
		results = append(results, r)
	}
	slices.SortFunc(results, func(a, b string) int { return cmp.Compare(t.results[b], t.results[a]) })
	for i, r := range results {
		results[i] = fmt.Sprintf("%d %s", t.results[r], r)
	}
	return fmt.Sprintf("%-8s  %d executions in %.0f s and %.0f core-s, %d failed, slowest %.2f s (number %d): %s",
		name, t.executions, t.took.Seconds(), t.cores.Seconds(), t.failures, t.slowest.Seconds(), t.slowestAt, strings.Join(results, ", "))
}

// run feeds a part until the time is over.
func (c campaign) run(p part) (*counts, error) {
	t := &counts{results: map[string]int64{}}
	var next atomic.Int64
	var all sync.WaitGroup
	begin, cores := time.Now(), coreTime()
	errs := make([]error, c.workers)
	for w := range c.workers {
		all.Go(func() {
			exec, err := p.start()
			for errs[w] = err; err == nil; {
				n := next.Add(1) - 1
				switch {
				case c.only >= 0 && n > 0, c.max > 0 && n >= c.max, c.only < 0 && time.Since(begin) > c.length:
					return
				case c.only >= 0:
					n = c.only
				}
				c.execute(p, exec, n, t)
			}
		})
	}
	all.Wait()
	t.took, t.cores = time.Since(begin), coreTime()-cores
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// execute runs execution n, whose input depends on the seed, the part and n alone.
func (c campaign) execute(p part, exec execution, n int64, t *counts) {
	id := fmt.Sprintf("-part %s -seed %d -only %d", p.name, c.seed, n)
	watch := time.AfterFunc(hang, func() {
		fmt.Fprintf(os.Stderr, "hostile: %s takes more than %v\n", id, hang)
		os.Exit(1)
	})
	start := time.Now()
	input, result, failed := c.attempt(exec, rand.New(rand.NewPCG(c.seed, uint64(n))), id)
	watch.Stop()
	if failed || c.only >= 0 {
		file := fmt.Sprintf("hostile-%s-%d-%d", p.name, c.seed, n)
		if err := os.WriteFile(file, input, 0o644); err == nil {
			fmt.Fprintf(os.Stderr, "hostile: %s: %s; its input is %s\n", id, result, file)
		}
	}
	t.add(n, result, time.Since(start), failed)
}

// attempt is exec with a panic as its result.
func (c campaign) attempt(exec execution, rng *rand.Rand, id string) (input []byte, result string, failed bool) {
	defer func() {
		if v := recover(); v != nil {
			result, failed = "panics", true
			fmt.Fprintf(os.Stderr, "hostile: %s: panic: %v\n%s", id, v, debug.Stack())
		}
	}()
	input, result = exec(rng)
	return input, result, strings.HasPrefix(result, "WRONG")
}

// add counts one execution.
func (t *counts) add(n int64, result string, took time.Duration, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.executions++
	t.results[result]++
	if failed {
		t.failures++
	}
	if took > t.slowest {
		t.slowest, t.slowestAt = took, n
	}
}
