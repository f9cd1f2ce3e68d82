package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMessageLeavesPackagesOut(t *testing.T) {
	for text, want := range map[string]string{
		"model: weights: a.gguf: tensor \"x\": want y":                    "a.gguf: tensor \"x\": want y",
		"--attn: sparse: attention \"a\": no system":                      "--attn: attention \"a\": no system",
		"engine: a context of 9 tokens: kvcache: 3 pages: cpu: Alloc: no": "a context of 9 tokens: 3 pages: Alloc: no",
		"the model: it is there":                                          "the model: it is there",
		"a.gguf: supermodel: no":                                          "a.gguf: supermodel: no",
		"plain":                                                           "plain",
		"a\x1b]0;title\x07.gguf: \u009b2J\r":                              `a\x1b]0;title\a.gguf: \u009b2J\r`,
	} {
		if got := message(errors.New(text)); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := message(errors.Join(errors.New("weights: a"), errors.New("b"))); got != "a; b" {
		t.Errorf("joined errors become %q", got)
	}
}

// Every library of the module is known to message, also one that is new.
func TestMessageKnowsEveryPackage(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.Name}}", "../../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		switch name {
		case "gollm", "main", "devtest", "modeltest", "golden", "vec", "kernels", "lineedit": // tests, commands, and those whose errors have no name before them
			continue
		}
		if got := message(fmt.Errorf("%s: says this", name)); got != "says this" {
			t.Errorf("package %s: %q", name, got)
		}
	}
}

func TestFileErrorNamesFlagAndWhatWasExpected(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := os.Open(missing)
	wrapped := fmt.Errorf("weights: %w", err)
	if got, want := message(fileError("-m", missing, "a GGUF file", wrapped)), "-m "+missing+": no such file or directory, want a GGUF file"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := fileError("-m", missing, "a GGUF file", wrapped); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is no fs.ErrNotExist", err)
	}
	other := errors.New("the file is cut short")
	if got := fileError("-m", missing, "a GGUF file", other); got != other {
		t.Errorf("%v, want it unchanged", got)
	}
	if got := fileError("-m", "part-1", "a GGUF file", err); !errors.Is(got, err) || strings.Contains(got.Error(), "-m") {
		t.Errorf("%v: another file than the flag's is not the flag's", got)
	}
}
