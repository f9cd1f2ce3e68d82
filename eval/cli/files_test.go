//go:build unix

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// TestWhatIsNoFileOfAnswersIsRefused gives folders, named pipes and lines of other
// forms for files of prompts and of answers.
func TestWhatIsNoFileOfAnswersIsRefused(t *testing.T) {
	model, dir := clitest.RandomModel(t, modeltest.Shape{}), t.TempDir()
	checkout, data := checkout(t)
	vt := ruler.DataPath(dir, 1024, ruler.Task{Name: "vt"})
	folder := filepath.Join(dir, "vt.jsonl")
	for _, path := range []string{filepath.Dir(vt), folder} {
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	pipe := filepath.Join(dir, "pipe.jsonl")
	if err := errors.Join(syscall.Mkfifo(vt, 0o600), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	score := func(suite, task, path string) []string {
		return []string{"eval", "score", "--suite", suite, "--task", task, path}
	}
	two := func(path string) []string {
		return []string{"eval", "longbench2", "-m", model, "--longbench", checkout, "--data", path, "-o", filepath.Join(dir, "run")}
	}
	long := []string{"eval", "longbench", "-m", model, "--longbench", checkout, "--data", data, "--tasks", "trec", "-o", filepath.Join(dir, "run")}
	if err := os.WriteFile(filepath.Join(data, "trec.jsonl"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, words []string }{
		{[]string{"eval", "ruler", "-m", model, "--data", dir, "--tasks", "vt", "--lengths", "1k", "-o", filepath.Join(dir, "run")}, []string{vt + " is a pipe"}},
		{[]string{"eval", "ruler-data", "-m", model, "-o", dir, "--tasks", "qa_1", "--squad", pipe}, []string{"--squad: " + pipe + " is a pipe"}},
		{[]string{"eval", "ruler-data", "-m", model, "-o", dir, "--tasks", "qa_2", "--hotpotqa", clitest.WriteFile(t, "n.json", "[1]")}, []string{"found number, want object"}},
		{score("ruler", "vt", "/dev/zero"), []string{"/dev/zero is a pipe or a device"}},
		{score("ruler", "vt", dir), []string{folder + " is a folder, want a file"}},
		{two(pipe), []string{pipe + " is a pipe"}},
		{two(dir), []string{dir + " is a folder"}},
		{two(clitest.WriteFile(t, "n.json", "[1]")), []string{" item 0: found number, want object"}},
		{long, []string{filepath.Join(data, "trec.jsonl") + " has no samples"}},
		{score("ruler", "vt", clitest.WriteFile(t, "a.jsonl", `{"pred": null, "outputs": ["a"]}`)), []string{":1: field pred is null, want the answer"}},
		{score("ruler", "vt", clitest.WriteFile(t, "a.jsonl", `{"outputs": ["a"]}`)), []string{":1: no field pred"}},
		{score("longbench", "qasper", clitest.WriteFile(t, "a.jsonl", `{"pred": null, "answers": ["a"]}`)), []string{":1: field pred is null"}},
		{score("longbench2", "", clitest.WriteFile(t, "a.jsonl", `{"judge": null}`)), []string{":1: field judge is null, want true or false"}},
		{score("longbench2", "", clitest.WriteFile(t, "a.jsonl", `{"judge": "yes"}`)), []string{":1: field judge is of type string, want bool"}},
	} {
		fails(t, console.ExitFailure, c.words, "", c.args...)
	}
}

// TestScoreReadsPipes scores what comes through a named pipe and from stdin, as from a
// file of the same, and is stopped where nothing comes.
func TestScoreReadsPipes(t *testing.T) {
	two := `{"judge":true,"pred":"A","difficulty":"easy","length":"long"}` + "\n"
	for _, c := range []struct{ suite, task, text string }{
		{"ruler", "vt", `{"pred":"A","outputs":["A"],"others":{}}` + "\n" + `{"pred":"","outputs":["A"],"others":{}}` + "\n"},
		{"longbench", "qasper", `{"pred":"no","answers":["no"],"all_classes":null,"length":5}` + "\n"},
		{"longbench2", "", two},
		{"longbench2", "", strings.Repeat(two, 3000)}, // more than a pipe holds
	} {
		args := []string{"eval", "score", "--json", "--suite", c.suite, "--task", c.task}
		want := ok(t, "", append(args, clitest.WriteFile(t, "a.jsonl", c.text))...)
		if got := ok(t, c.text, append(args, "-")...); got != want {
			t.Errorf("%s: stdin is scored %s, a file %s", c.suite, got, want)
		}
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		go os.WriteFile(pipe, []byte(c.text), 0o600) // a failure shows in what is read
		if got := ok(t, "", append(args, pipe)...); got != want {
			t.Errorf("%s: a pipe is scored %s, a file %s", c.suite, got, want)
		}
	}
	fails(t, console.ExitFailure, []string{"stdin:1: not a JSON object"}, "answers\n", "eval", "score", "--suite", "ruler", "--task", "vt", "-")
	fails(t, console.ExitFailure, []string{"gollm: /no/answers: no such file or directory, want a file or folder of predictions"}, "", "eval", "score", "--suite", "ruler", "/no/answers")
	fails(t, console.ExitUsage, []string{`"-"`, "--task says it"}, "", "eval", "score", "--suite", "ruler", "-")

	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	silent, talker, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer talker.Close()
	for path, stdin := range map[string]io.Reader{pipe: strings.NewReader(""), "-": silent} {
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		var errs strings.Builder
		if code := testProgram(ctx, []string{"eval", "score", "--suite", "longbench2", path}, stdin, io.Discard, &errs); code != console.ExitFailure || !strings.Contains(errs.String(), "deadline exceeded") {
			t.Errorf("%s: exit code %d, stderr %q", path, code, errs.String())
		}
	}
}
