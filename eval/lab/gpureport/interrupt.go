package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// interrupt stops a prefill as Ctrl-C does, and looks at what the device has then.
func (r *report) interrupt(ctx context.Context, rows []*row) error {
	path, err := r.model(ctx, modelSpec{"llama-3.1-8b", "f16", 0, false})
	if err != nil {
		return err
	}
	before, err := r.available(ctx)
	if err != nil {
		return err
	}
	letters, wait := 120_000, 4*time.Second
	if r.small {
		letters, wait = 3_000, 200*time.Millisecond
	}
	prompt := filepath.Join(r.folder, "prompt.txt")
	if err := os.WriteFile(prompt, []byte(strings.Repeat("a", letters)), 0o666); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, r.bin.gollm, "generate", "-v", "-m", path, "--device", r.device, "-f", prompt, "-n", "1", "--ctx", fmt.Sprint(letters+100))
	told, err := c.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	begun := false
	lines := bufio.NewScanner(told)
	var last string
	for !begun && lines.Scan() {
		last = lines.Text()
		begun = strings.Contains(last, "context of")
	}
	if !begun {
		return fmt.Errorf("the prefill did not begin: %w: %s", errors.Join(c.Wait(), lines.Err()), last)
	}
	answers := make(chan time.Time, 1)
	var rest sync.WaitGroup
	rest.Go(func() {
		for lines.Scan() { // what was computed, once the prefill has returned
			if !strings.Contains(lines.Text(), "reading the prompt") { // which -v says now and then
				select {
				case answers <- time.Now():
				default:
				}
			}
		}
	})
	time.Sleep(wait) // into the prompt
	select {
	case <-answers:
		return errors.New("the prefill was over before it was interrupted")
	default:
	}
	pressed := time.Now()
	if err := c.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("the prefill was over: %w", err)
	}
	rest.Wait()
	err = c.Wait()
	took := time.Since(pressed)
	if code := c.ProcessState.ExitCode(); code != 130 {
		return fmt.Errorf("an interrupted prefill ends with %d: %w; want 130", code, errors.Join(err, ctx.Err()))
	}
	how := fmt.Sprintf("Llama-3.1-8B F16, %v into a prompt of %d tokens, ", wait, letters)
	select {
	case at := <-answers:
		rows[0].set(float64(at.Sub(pressed).Milliseconds()), "ms")
		rows[0].How = how + "until the prefill has returned and its figures are printed"
	default:
		rows[0].Unmeasured = "nothing was printed"
	}
	rows[1].set(float64(took.Milliseconds()), "ms")
	rows[1].How = how + "until all memory is given back and the process has ended"
	after, err := r.available(ctx)
	if err != nil {
		return err
	}
	if before == "" || after == "" {
		return errors.New("the device does not tell its memory")
	}
	rows[2].set(1, "")
	if before != after {
		rows[2].Value = 0
	}
	rows[2].How, rows[2].Note = "after the interrupted process, beside what was free before it; 1 is the same", after+", before "+before
	return nil
}

// available is what gollm devices says of the device's memory.
func (r *report) available(ctx context.Context) (string, error) {
	out, err := output(ctx, "", r.bin.gollm, "devices")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if name, text, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == r.device {
			if i := strings.LastIndex(text, "), "); i >= 0 {
				return strings.TrimSuffix(text[i+3:], " of memory available"), nil
			}
		}
	}
	return "", nil
}
