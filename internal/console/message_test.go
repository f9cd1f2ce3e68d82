package console

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

func TestMessageLeavesPackagesOut(t *testing.T) {
	for text, want := range map[string]string{
		"model: weights: a.gguf: tensor \"x\": want y":                    "a.gguf: tensor \"x\": want y",
		"--attn: sparse: attention \"a\": no method":                      "--attn: attention \"a\": no method",
		"engine: a context of 9 tokens: kvcache: 3 pages: cpu: Alloc: no": "a context of 9 tokens: 3 pages: Alloc: no",
		"the model: it is there":                                          "the model: it is there",
		"a.gguf: supermodel: no":                                          "a.gguf: supermodel: no",
		"plain":                                                           "plain",
		"a\x1b]0;title\x07.gguf: \u009b2J\r":                              `a\x1b]0;title\a.gguf: \u009b2J\r`,
	} {
		if got := Message(errors.New(text)); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := Message(errors.Join(errors.New("weights: a"), errors.New("b"))); got != "a; b" {
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
		case "gollm", "main", "devtest", "modeltest", "randommodel", "golden", "clitest", "vec", "kernels", "lineedit", // tests, commands, and those whose errors have no name before them
			"cli", "console", "openmodel", "usage", "userfile":
			continue
		}
		if got := Message(fmt.Errorf("%s: says this", name)); got != "says this" {
			t.Errorf("package %s: %q", name, got)
		}
	}
}
