package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// A model that is cut short while text is made of it ends the program in one line, on
// whatever thread it is noticed.
func TestModelIsCutShort(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		model := filepath.Join(t.TempDir(), "cut.gguf")
		if err := modeltest.Writer(modeltest.Shape{Dim: 256, FF: 512, Context: 4096}).WriteFile(model); err != nil {
			t.Fatal(err)
		}
		cmd := clitest.Process("generate", "-m", model, "-p", "a", "-n", "-1", "--ignore-eos", "--ctx", "200000", "--threads", fmt.Sprint(threads))
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 16)); err != nil {
			t.Fatalf("%v; stderr %q", err, errs.String())
		}
		if err := os.Truncate(model, 50_000); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out) // until it ends
		_ = cmd.Wait()
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		line := lines[len(lines)-1] // behind warnings
		for _, word := range []string{"gollm: " + model, "was cut short while it was in use", "has 50000 now"} {
			if !strings.Contains(line, word) {
				t.Errorf("%d threads: %.2000q, want %q in it", threads, line, word)
			}
		}
		if code := cmd.ProcessState.ExitCode(); code != console.ExitFailure || strings.Contains(errs.String(), "goroutine") {
			t.Errorf("%d threads: exit code %d and stderr %.2000q, want %d and no trace", threads, code, errs.String(), console.ExitFailure)
		}
	}
}

// Where address space is limited, what does not fit is one line: the Go runtime would end
// in a trace.
func TestAddressSpaceIsLimited(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the limit is read on Linux")
	}
	gollm := clitest.Process("generate", "-m", clitest.Stories(t), "-p", "a", "-n", "2", "--ctx", "94371840")
	cmd := exec.Command("sh", append([]string{"-c", `ulimit -v 4000000; exec "$0" "$@"`}, gollm.Args...)...)
	cmd.Env = gollm.Env
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "ThreadSanitizer") {
		t.Skip("the race detector needs more addresses than any limit leaves")
	}
	if code := cmd.ProcessState.ExitCode(); err == nil || code != console.ExitFailure {
		t.Errorf("%v, exit code %d, want %d", err, code, console.ExitFailure)
	}
	for _, word := range []string{"gollm: a KV cache of 94371840 tokens needs ", "ulimit -v", "leaves "} {
		if !strings.Contains(string(out), word) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%.2000q, want one line with %q", out, word)
		}
	}
}
