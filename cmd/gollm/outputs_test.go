//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/model/modeltest"
)

// contents reads a file.
func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pipe makes a named pipe, and reads what is written to it until the test ends.
func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // which waits for nobody
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	go io.Copy(io.Discard, f)
	return path
}

// A run that fails leaves what stands at -o as it was, whatever it is, and
// nothing beside it.
func TestFailuresLeaveTheOutputAsItWas(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	dir := t.TempDir()
	old := filepath.Join(dir, "old.f32")
	if err := os.WriteFile(old, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	fails(t, console.ExitFailure, []string{"the prompt has no tokens"}, "[]", "logits", "-m", model, "--tokens", "-", "-o", old)
	if got := contents(t, old); got != "kept" {
		t.Errorf("the file has %q", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside it are %v, %v", left, err)
	}
	to := pipe(t)
	fails(t, console.ExitFailure, []string{"the prompt has no tokens"}, "[]", "logits", "-m", model, "--tokens", "-", "-o", to)
	if info, err := os.Lstat(to); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe is gone: %v", err)
	}
}

// What is at -o is replaced whole, through links and with its mode.
func TestOutputsReplaceFiles(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	want := ok(t, "[1,2]", "logits", "-m", model, "--tokens", "-", "-o", "-")
	old := clitest.WriteFile(t, "old.f32", "old")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(old, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(old, 0o600); err != nil {
		t.Fatal(err)
	}
	ok(t, "[1,2]", "logits", "-m", model, "--tokens", "-", "-o", link)
	info, err := os.Lstat(old)
	if err != nil {
		t.Fatal(err)
	}
	if contents(t, old) != want || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %d bytes and mode %v", info.Size(), info.Mode())
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	to := pipe(t)
	ok(t, "[1,2]", "logits", "-m", model, "--tokens", "-", "-o", to)
	fresh := filepath.Join(t.TempDir(), "fresh")
	ok(t, "[1,2]", "logits", "-m", model, "--tokens", "-", "-o", fresh)
	if contents(t, fresh) != want {
		t.Error("a new file has other bytes than stdout")
	}
}

// No command writes over what it reads, nor twice to one file.
func TestOutputsAreNotInputs(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	ids := clitest.WriteFile(t, "ids.json", "[1,2]")
	q, k, v := save(t, randomArray(1, 4, 20, 8)), save(t, randomArray(2, 2, 20, 8)), save(t, randomArray(3, 2, 20, 8))
	link := filepath.Join(t.TempDir(), "link.json")
	if err := os.Link(ids, link); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.npy")
	text := clitest.WriteFile(t, "text.json", "a text")
	for _, tt := range []struct {
		words, args []string
	}{
		{[]string{"-o " + model, "the file of -m"}, []string{"logits", "-m", model, "--tokens", ids, "-o", model}},
		{[]string{"-o " + link, "the file of --tokens"}, []string{"logits", "-m", model, "--tokens", ids, "-o", link}},
		{[]string{"-o " + q, "the file of --q"}, []string{"attend", "--q", q, "--k", k, "--v", v, "-o", q}},
		{[]string{"--indices " + v, "the file of --v"}, []string{"attend", "--q", q, "--k", k, "--v", v, "-o", out, "--indices", v}},
		{[]string{"--indices " + out, "the file of -o"}, []string{"attend", "--q", q, "--k", k, "--v", v, "-o", out, "--indices", out}},
		{[]string{"-o " + k, "the file of --layers-of"}, []string{"attend", "--layers-of", q + "," + k + "," + v, "-o", k}},
		{[]string{"--audit-out " + text, "the file of -f"}, []string{"generate", "-m", model, "-f", text, "--audit-out", text}},
		{[]string{"--audit-out " + text, "the file of -f"}, []string{"perplexity", "-m", model, "-f", text, "--audit-out", text}},
	} {
		inputs := []string{model, ids, q, k, v, text}
		var before []string
		for _, path := range inputs {
			before = append(before, contents(t, path))
		}
		fails(t, console.ExitUsage, tt.words, "", tt.args...)
		for i, path := range inputs {
			if contents(t, path) != before[i] {
				t.Fatalf("%v: %s is another file now", tt.args, path)
			}
		}
	}
}

// Ctrl-C in the middle of a file leaves nothing of it.
func TestInterruptLeavesNoPartOfAFile(t *testing.T) {
	const n = 12000 // more steps than can be done before the signal
	q, k, v := save(t, randomArray(1, 4, n, 8)), save(t, randomArray(2, 2, n, 8)), save(t, randomArray(3, 2, n, 8))
	dir := t.TempDir()
	cmd := clitest.Process("attend", "--attn", "topk", "--phase", "decode", "--rows", fmt.Sprint(n), "--q", q, "--k", k, "--v", v,
		"-o", filepath.Join(dir, "out.npy"), "--indices", filepath.Join(dir, "idx.json"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun := func() bool {
		names, err := filepath.Glob(filepath.Join(dir, "idx.json.part-*"))
		return err == nil && len(names) == 1
	}
	for deadline := time.Now().Add(time.Minute); !begun(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no file is begun after a minute")
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := clitest.Wait(t, cmd); code != console.ExitInterrupted {
		t.Errorf("exit code %d, want %d", code, console.ExitInterrupted)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
}

// What is written in the end is opened before the work: where that is not possible
// nothing was computed, and nothing else is written.
func TestOutputsAreOpenedBeforeTheWork(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder.json") // which is no file
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	q, kv := save(t, randomArray(1, 2, 20, 8)), save(t, randomArray(2, 1, 20, 8))
	attend := func(more ...string) []string {
		return append([]string{"attend", "--q", q, "--k", kv, "--v", kv, "--attn", "streaming(sink=1,window=4)"}, more...)
	}
	idx, nowhere := filepath.Join(dir, "idx.json"), filepath.Join(dir, "none", "out.npy")
	fails(t, console.ExitFailure, []string{"-o " + nowhere, "no such file"}, "", attend("-o", nowhere, "--indices", idx)...)
	if userfile.Exists(idx) {
		t.Error("attend: the indices were written before the result could not be")
	}
	old := clitest.WriteFile(t, "old.npy", "kept")
	fails(t, console.ExitFailure, []string{folder, "is a directory"}, "", attend("-o", old, "--audit", folder)...)
	if got := contents(t, old); got != "kept" {
		t.Errorf("attend: the result was written before the audit could not be: %q", got)
	}

	model := clitest.RandomModel(t, modeltest.Shape{})
	bench := func(more ...string) []string {
		return append([]string{"bench", "-m", model, "--ctx", "8", "--steps", "1", "--reps", "1"}, more...)
	}
	page := filepath.Join(dir, "none", "page.html")
	fails(t, console.ExitFailure, []string{"--html " + page, "no such file"}, "", bench("--html", page)...)
	fails(t, console.ExitFailure, []string{folder, "is a directory"}, "", bench("--audit-out", folder)...)
	fails(t, console.ExitUsage, []string{"--html", "is the file of -m too"}, "", bench("--html", model)...)
	page = filepath.Join(dir, "page.html")
	fails(t, console.ExitUsage, []string{"--audit-out", "is the file of --html too"}, "", bench("--html", page, "--audit-out", page)...)
	fails(t, console.ExitFailure, []string{"GGUF"}, "", "bench", "-m", q, "--ctx", "8", "--html", page)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("what failed has left %v, %v", left, err)
	}
}
