package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// output runs a program and gives what it prints; an error has the first line that
// says what is wrong.
func output(ctx context.Context, folder, program string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = folder
	c.WaitDelay = 10 * time.Second // for a driver that does not let a process go
	var out, wrong bytes.Buffer
	c.Stdout, c.Stderr = &out, &wrong
	err := c.Run()
	if ctx.Err() != nil {
		return out.Bytes(), ctx.Err()
	}
	if err != nil {
		text := firstLine(wrong.Bytes())
		if text == "" {
			text = firstLine(out.Bytes())
		}
		err = fmt.Errorf("%s: %w: %s", filepath.Base(program), err, text)
	}
	return out.Bytes(), err
}

// devices lists them and says what the machine is.
func (r *report) devices(ctx context.Context, rows []*row) error {
	r.about.Date, r.about.Commit, r.about.Small = time.Now().UTC().Format("2006-01-02 15:04 UTC"), r.commit, r.small
	r.about.CPU = runtime.GOARCH
	out, err := output(ctx, "", r.bin.gollm, "devices")
	if err != nil {
		return err
	}
	n := 0
	kind, _, _ := strings.Cut(r.device, ":")
	for line := range strings.Lines(string(out)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(name, "cpu") {
			r.about.CPU = text
		}
		if !strings.HasPrefix(name, kind) {
			continue
		}
		if strings.HasPrefix(text, "not usable") {
			return errors.New(text)
		}
		n++
		if name == r.device {
			r.about.Device, _, _ = strings.Cut(text, "), ")
			r.about.Device += ")"
		}
	}
	if driver, err := output(ctx, "", "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"); err == nil {
		r.about.Driver = firstLine(driver)
	}
	rows[0].set(float64(n), "")
	rows[0].Note = r.about.Device
	return nil
}

// outcome matches the lines of go test -v.
var outcome = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// results runs tests of a test binary in the folder of its package, and counts those
// without tests of their own.
func (r *report) results(ctx context.Context, binary, folder, pattern string, more ...string) (counts map[string]int, names map[string][]string, err error) {
	if _, err := os.Stat(binary); err != nil {
		return nil, nil, fmt.Errorf("no test binary: %w", err)
	}
	out, err := output(ctx, folder, binary, append([]string{"-test.v", "-test.run", pattern}, more...)...)
	counts, names = map[string]int{}, map[string][]string{}
	all := outcome.FindAllSubmatch(out, -1)
	parent := map[string]bool{}
	for _, m := range all {
		for name := string(m[2]); strings.Contains(name, "/"); {
			name = name[:strings.LastIndex(name, "/")]
			parent[name] = true
		}
	}
	for _, m := range all {
		if name := string(m[2]); !parent[name] {
			counts[string(m[1])]++
			names[string(m[1])] = append(names[string(m[1])], name)
		}
	}
	if counts["FAIL"] > 0 { // which is why it did not succeed
		err = nil
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s has no test %s", filepath.Base(binary), pattern)
	}
	return counts, names, err
}

// countFailures fills a row with how many tests fail.
func countFailures(w *row, counts map[string]int, names map[string][]string, err error) error {
	if err != nil {
		w.Unmeasured = err.Error()
		return err
	}
	w.set(float64(counts["FAIL"]), "")
	w.Note = fmt.Sprintf("%d pass, %d are skipped", counts["PASS"], counts["SKIP"])
	if bad := names["FAIL"]; len(bad) > 0 {
		w.Note += ": " + strings.Join(bad[:min(5, len(bad))], ", ")
	}
	return nil
}

// suites runs the conformance suite, models with known answers, and many steps.
func (r *report) suites(ctx context.Context, rows []*row) error {
	conformance, models, steps := "^TestConformance$", "^(TestLogitsAgainstExact|TestGreedyTextIsLlamaCppsWordForWord|TestTokenByTokenAgreesWithPrefill|TestBatchEqualsAlone)$", []string(nil)
	if r.small {
		conformance, models, steps = "^TestConformance$/^(memory|append)$", "^TestForeignIDsAreRefused$", []string{"-test.short"}
	}
	timed := func(limit time.Duration, f func(context.Context) error) error {
		own, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err := f(own)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("it took longer than %v", limit)
		}
		return err
	}
	for i, run := range []func(context.Context) (map[string]int, map[string][]string, error){
		func(ctx context.Context) (map[string]int, map[string][]string, error) {
			return r.results(ctx, r.bin.cuda, "cuda", conformance)
		},
		func(ctx context.Context) (map[string]int, map[string][]string, error) {
			return r.results(ctx, r.bin.engine, "engine", models)
		},
		func(ctx context.Context) (map[string]int, map[string][]string, error) {
			return r.results(ctx, r.bin.engine, "engine", "^TestStepsKeepMemory$", steps...)
		},
	} {
		limit := []time.Duration{100 * time.Second, 45 * time.Second, 45 * time.Second}[i]
		if r.small {
			limit *= slower
		}
		var counts map[string]int
		var names map[string][]string
		err := timed(limit, func(ctx context.Context) (err error) {
			counts, names, err = run(ctx)
			return err
		})
		_ = countFailures(rows[i], counts, names, err) // the row says why
		if i == 2 && err == nil && counts["PASS"] == 0 && counts["FAIL"] == 0 {
			rows[i].Unmeasured = "the test is skipped: the device does not tell its memory"
		}
	}
	return nil
}

// sanitize runs a part of the conformance suite under NVIDIA's checkers.
func (r *report) sanitize(ctx context.Context, rows []*row) error {
	tool, err := exec.LookPath("compute-sanitizer")
	if err != nil {
		tool, err = exec.LookPath("/usr/local/cuda/bin/compute-sanitizer")
	}
	if err != nil {
		return errors.New("compute-sanitizer is not installed")
	}
	if r.small {
		return errors.New("there is nothing to check on an emulated GPU")
	}
	errorsIn := regexp.MustCompile(`(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+)`)
	for i, check := range []struct{ tool, cases string }{
		{"memcheck", "^TestConformance$/^(append|margin|reuse)$"}, {"racecheck", "^TestConformance$/^(append)$"},
	} {
		own, cancel := context.WithTimeout(ctx, 30*time.Second)
		out, err := output(own, "cuda", tool, "--tool", check.tool, r.bin.cuda, "-test.run", check.cases)
		cancel()
		found := errorsIn.FindSubmatch(out)
		switch {
		case found != nil:
			n := 0.0
			fmt.Sscan(string(found[1]), &n)
			rows[i].set(n, "")
			rows[i].How = check.cases
		case own.Err() != nil:
			rows[i].Unmeasured = "it took longer than 30 s"
		case err != nil:
			rows[i].Unmeasured = err.Error()
		default:
			rows[i].Unmeasured = "the tool prints no summary"
		}
	}
	return nil
}
