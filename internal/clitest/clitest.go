// Package clitest runs command lines in tests: in the process of the test, or as a process
// that is the test binary itself, so that nothing is built twice.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gollm/gollm/model/modeltest"
)

// AsCommand makes the test binary be gollm, for tests that need a process.
const AsCommand = "GOLLM_TEST_IS_COMMAND"

// Main runs the tests, or where the test binary is to be gollm, main.
func Main(m *testing.M, main func()) {
	if os.Getenv(AsCommand) == "gollm" {
		main()
	}
	os.Exit(m.Run())
}

// Process is gollm as a process of its own.
func Process(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), AsCommand+"=gollm")
	return cmd
}

// Result is what a command line did.
type Result struct {
	Code      int
	Out, Errs string
}

// Program is a command line that runs in this process and returns its exit code.
type Program func(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int

// Run runs a command line.
func (p Program) Run(stdin string, args ...string) Result {
	var out, errs bytes.Buffer
	code := p(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return Result{code, out.String(), errs.String()}
}

// OK runs a command line that must succeed and returns its stdout.
func (p Program) OK(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := p.Run(stdin, args...)
	if r.Code != 0 {
		t.Fatalf("gollm %v: exit code %d, stderr %q", args, r.Code, r.Errs)
	}
	return r.Out
}

// Fails runs a command line that must fail with a code, print nothing on stdout
// and on stderr one line with all of words.
func (p Program) Fails(t *testing.T, code int, words []string, stdin string, args ...string) {
	t.Helper()
	r := p.Run(stdin, args...)
	if r.Code != code || r.Out != "" {
		t.Errorf("gollm %v: exit code %d and stdout %q, want %d and nothing", args, r.Code, r.Out, code)
	}
	line, rest, _ := strings.Cut(r.Errs, "\n")
	if !strings.HasPrefix(line, "gollm: ") || rest != "" {
		t.Errorf("gollm %v: stderr %q, want one line that begins with gollm:", args, r.Errs)
	}
	for _, w := range words {
		if !strings.Contains(line, w) {
			t.Errorf("gollm %v: stderr %q, want %q in it", args, line, w)
		}
	}
}

// Decode reads JSON that must be whole and alone.
func Decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if d.More() {
		t.Fatalf("more than one value in %q", text)
	}
	return v
}

// Need finds a file of the tests in the tree or beside it; without it the test
// is skipped, but in CI it fails.
func Need(t *testing.T, paths ...string) string {
	t.Helper()
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("none of %v is there", paths)
	}
	t.Skipf("none of %v is there", paths)
	return ""
}

// Stories is a small trained model.
func Stories(t *testing.T) string {
	t.Helper()
	return Need(t, "../../testdata/stories260K.gguf", "../../../shared/data/models/stories260K.gguf")
}

// RandomModel writes a model with random weights and returns its path.
func RandomModel(t *testing.T, s modeltest.Shape) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "random.gguf")
	if err := modeltest.Writer(s).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// WriteFile makes a file and returns its path.
func WriteFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Wait waits for a process, but not forever.
func Wait(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// ReadFile is the text of a file.
func ReadFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Evil is what a hostile file has in its names, keys and values: a title, an erased
// screen, text that runs backwards, text that is not shown, the end of a line and
// bytes that are no UTF-8.
const Evil = "a\x1b]0;t\a\u009b2J\x7f\u202egnp\u2066\u200b\u200f\u061c\u2028\u00ad\U000e0041\u3164\r\ngollm: all is well\x9b31m"

// Harmless fails where a terminal would obey or hide something of what was printed.
// It does not ask the code that it tests.
func Harmless(t *testing.T, what, printed string) {
	t.Helper()
	for i := 0; i < len(printed); {
		c, n := utf8.DecodeRuneInString(printed[i:])
		bad := c == utf8.RuneError && n == 1 || c == 0x3164 || unicode.Is(unicode.Cf, c) || unicode.Is(unicode.Zl, c) || unicode.Is(unicode.Zp, c)
		if bad || (unicode.IsControl(c) && c != '\n' && c != '\t') {
			t.Errorf("%s prints %q at %q", what, printed[i:i+n], printed[max(0, i-40):min(len(printed), i+40)])
			return
		}
		i += n
	}
	if strings.Contains(printed, "\ngollm: all is well") {
		t.Errorf("%s lets a file write a line of its own: %q", what, printed)
	}
}

// Full takes nothing, like a disk without room.
type Full struct{}

// Write fails.
func (Full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
