package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/model/modeltest"
)

// evil is what a hostile file has in its names, keys and values: a title, an erased
// screen, text that runs backwards, text that is not shown, the end of a line and
// bytes that are no UTF-8.
const evil = "a\x1b]0;t\a\u009b2J\x7f\u202egnp\u2066\u200b\u200f\u061c\u2028\u00ad\U000e0041\u3164\r\ngollm: all is well\x9b31m"

func TestVisible(t *testing.T) {
	const shown = `a\x1b]0;t\a\u009b2J\x7f\u202egnp\u2066\u200b\u200f\u061c\u2028\u00ad\U000e0041\u3164\r` + "\n" + `gollm: all is well\x9b31m`
	const plain = "a\tb\nÄ 漢字 🙂 é \ufffd ±│"
	for _, tt := range []struct {
		name     string
		show     func(string) string
		in, want string
	}{
		{"visible", visible, evil, shown},
		{"visible", visible, plain, plain},
		{"oneLine", oneLine, evil, strings.ReplaceAll(shown, "\n", `\n`)},
		{"oneLine", oneLine, "a\tb", `a\tb`},
		{"visibleText", visibleText, plain + "👩\u200d💻 نمی\u200cخواهم \u200f", plain + "👩\u200d💻 نمی\u200cخواهم \u200f"},
		{"visibleText", visibleText, "\x1b[2J\u009bm\r\u202e\u2069\xff\x7f", `\x1b[2J\u009bm\r\u202e\u2069\xff\x7f`},
	} {
		if got := tt.show(tt.in); got != tt.want {
			t.Errorf("%s(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

// What a screen is given in pieces is what it is given at once.
func TestScreenTakesPieces(t *testing.T) {
	for _, text := range []string{evil, "漢\u202e字🙂\U000e0041", "\xf0\x9f", "a\xe6\xbc"} {
		for size := 1; size < 8; size++ {
			var out strings.Builder
			s := newScreen(&out)
			for piece := range slices.Chunk([]byte(text), size) {
				if n, err := s.Write(piece); n != len(piece) || err != nil {
					t.Fatal(n, err)
				}
			}
			s.flush()
			if got, want := out.String(), visible(text); got != want {
				t.Errorf("%q in pieces of %d bytes: %q, want %q", text, size, got, want)
			}
		}
	}
}

func TestJSONHasNoHiddenCharacters(t *testing.T) {
	want := strings.ToValidUTF8(evil, "\ufffd")
	var out bytes.Buffer
	if err := writeJSON(&out, map[string]string{want: want}); err != nil {
		t.Fatal(err)
	}
	harmless(t, "writeJSON", out.String())
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[want] != want {
		t.Errorf("%v, %q, want %q", err, got, want)
	}
}

func TestElide(t *testing.T) {
	for _, tt := range []struct{ in, want string }{{"12345678", "12345678"}, {"123456789", "123456…9"}, {"äöüÄÖÜßé", "äöüÄÖÜßé"}, {"äöüÄÖÜßéè", "äöüÄÖÜ…è"}} {
		if got := elide(tt.in, 8); got != tt.want {
			t.Errorf("elide(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
	if got := message(errors.New("key " + strings.Repeat("k", 40_000) + " is no number")); len(got) > maxMessage+2 || !strings.HasPrefix(got, "key kk") || !strings.HasSuffix(got, "k is no number") {
		t.Errorf("an error of 40,000 bytes becomes a line of %d: %.20s...", len(got), got)
	}
}

// harmless fails where a terminal would obey or hide something of what was printed.
// It does not ask the code that it tests.
func harmless(t *testing.T, what, printed string) {
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

// hostile writes models with evil in every text that they have: one that runs and one
// of an unknown architecture.
func hostile(t *testing.T, dir string) (runs, strange string) {
	t.Helper()
	tokens := plainTokens(320)
	for i := 259; i < 320; i++ {
		tokens[i] = evil + tokens[i]
	}
	types := make([]int32, 320)
	for i := range types {
		types[i] = 1
	}
	types[0], types[1], types[2], types[300] = 2, 3, 3, 3
	keys := map[string]any{
		"general.name": evil, "general." + evil: evil, evil: []string{evil, evil}, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
		"tokenizer.chat_template": evil + "{{ bos_token }}{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}\n" + evil,
	}
	make := func(name string, tensors ...string) string {
		w := modeltest.Writer(modeltest.Shape{Context: 1024, Keys: keys})
		for _, tensor := range tensors {
			w.AddF32(tensor, []float32{1}, 1)
		}
		path := filepath.Join(dir, evil+name)
		if err := w.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	runs = make("runs.gguf")
	keys["general.architecture"], keys[evil+".block_count"], keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"] = evil, 3, evil, evil
	return runs, make("strange.gguf", evil)
}

// TestHostileFiles runs every subcommand on files whose names and contents are made to
// fool a terminal. Only what asks for data gets their bytes.
func TestHostileFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x"+evil)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	runs, strange := hostile(t, dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"text": strings.Repeat(evil+"word ", 100), "ids.json": "[1, 270, 300]", "broken.json": `["` + evil + `"]`, "niah_single_1.jsonl": evil + "\n",
		"bad.gguf": "GGUF" + evil, "template": "{{ messages }}{{ nothing." + "\u202e" + " }}",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	npyFile := save(t, randomArray(1, 2, 8, 4))
	run := func(more ...string) []string {
		return append([]string{"eval", "niah", "-m", runs, "--lengths", "900", "--depths", "1", "--haystack", at("text"), "--max-new-tokens", "2"}, more...)
	}
	none := at("none")
	seen := map[string]bool{}
	for _, tt := range []struct {
		stdin string
		code  int
		data  bool // stdout is data
		args  []string
	}{
		{args: []string{"inspect", runs, "--tensors", "--metadata"}},
		{args: []string{"inspect", strange, "--tensors", "--metadata"}},
		{args: []string{"inspect", runs, "--tensors", "--metadata", "--json"}},
		{args: []string{"inspect", runs, "--template"}, data: true},
		{args: []string{"inspect", none}, code: exitFailure},
		{args: []string{"inspect", at("bad.gguf")}, code: exitFailure},
		{args: []string{"generate", "-v", "-m", runs, "-p", evil, "-n", "4"}, data: true},
		{args: []string{"generate", "-v", "-m", runs, "-p", evil, "-n", "4", "--chat", "--json"}},
		{args: []string{"generate", "-m", runs, "-p", "a", "--chat", "--template", none}, code: exitFailure},
		{args: []string{"generate", "-m", runs, "-p", "a", "--chat", "--template", "llama3", "-n", "1"}, data: true},
		{args: []string{"generate", "-m", strange, "-p", "a"}, code: exitFailure},
		{args: []string{"generate", "-m", runs, "-p", "a", "--attn", evil}, code: exitUsage},
		{args: []string{"generate", "-m", runs, "-p", "a", "--attn", "@" + at("text")}, code: exitUsage},
		{stdin: "Hi\n/system " + evil + "\n/system\n/stats\n", args: []string{"chat", "-v", "-m", runs, "-n", "2"}, data: true},
		{stdin: "/" + evil, args: []string{"chat", "-m", runs, "-n", "2"}, code: exitFailure, data: true},
		{args: []string{"tokenize", "-m", runs, "-p", evil, "--pieces"}},
		{args: []string{"tokenize", "-m", runs, "-f", at("ids.json"), "--decode"}, data: true},
		{args: []string{"tokenize", "-m", runs, "-f", at("broken.json"), "--decode"}, code: exitFailure},
		{args: []string{"logits", "-v", "-m", runs, "--tokens", at("ids.json"), "-o", at("logits")}},
		{args: []string{"logits", "-m", runs, "--tokens", none, "-o", at("logits")}, code: exitFailure},
		{args: []string{"perplexity", "-v", "-m", runs, "-f", at("text"), "--ctx", "64"}},
		{args: []string{"perplexity", "-m", runs, "-f", at("text"), "--ctx", "64", "--json"}},
		{args: []string{"bench", "-v", "-m", strange}, code: exitFailure}, // measuring the machine takes seconds; the report is below
		{args: []string{"channels", "-v", "-m", runs, "-f", at("text"), "-o", at("channels.npy"), "--limit", "32"}},
		{args: []string{"attend", "-v", "--q", npyFile, "--k", npyFile, "--v", npyFile, "-o", at("out.npy"), "--audit", at("audit.json")}},
		{args: []string{"attend", "--q", at("text"), "--k", npyFile, "--v", npyFile, "-o", at("out.npy")}, code: exitFailure},
		{args: run("-v", "-o", at("run"), "--attn", "dense", "--attn", "streaming(sink=1,window=32)")},
		{args: []string{"eval", "show", at("run")}},
		{args: []string{"eval", "show", none}, code: exitFailure},
		{args: []string{"eval", "compare", at("run"), at("run")}},
		{args: []string{"eval", "merge", "-o", at("merged"), at("run")}},
		{args: []string{"eval", "merge", "-o", at("merged"), none}, code: exitFailure},
		{args: []string{"eval", "ppl", "-v", "-m", runs, "-f", at("text"), "--ctx", "128"}},
		{args: []string{"eval", "score", "--suite", "ruler", at("niah_single_1.jsonl")}, code: exitFailure},
		{args: []string{"eval", "ruler", "-m", runs, "-o", at("ruler"), "--data", none}, code: exitFailure},
		{args: []string{"eval", "longbench", "-m", runs, "-o", at("lb"), "--longbench", none, "--data", none}, code: exitFailure},
		{args: []string{"eval", "longbench2", "-m", runs, "-o", at("lb2"), "--longbench", none, "--data", none}, code: exitFailure},
		{args: []string{"eval", "ruler-data", "-m", runs, "-o", at("data"), "--lengths", "1024", "--samples", "1", "--tasks", "niah_single_1"}},
		{args: []string{"attn", evil}, code: exitUsage},
		{args: []string{"devices"}},
		{args: []string{"version"}},
		{args: []string{"help", evil}, code: exitUsage},
		{args: []string{"completion", evil}, code: exitUsage},
		{args: []string{evil}, code: exitUsage},
	} {
		r := gollm(tt.stdin, tt.args...)
		if r.code != tt.code {
			t.Errorf("gollm %.80q: exit code %d, want %d: %s", tt.args, r.code, tt.code, r.errs)
		}
		what := strings.Join(tt.args[:min(2, len(tt.args))], " ")
		harmless(t, what+": stderr", r.errs)
		if !tt.data {
			harmless(t, what+": stdout", r.out)
		} else if tt.code == exitOK && strings.Contains(r.out, `\x1b`) {
			t.Errorf("%s: the bytes of data are not as they are: %q", what, r.out)
		}
		seen[tt.args[0]], seen[what] = true, true
	}
	var bench strings.Builder
	if err := (&benchFlags{}).print(newScreen(&bench), benchReport{Model: runs, Machine: machineReport{CPU: evil}}); err != nil {
		t.Fatal(err)
	}
	harmless(t, "bench", bench.String())
	for _, name := range leaves(newRoot()) {
		if !seen[name] {
			t.Errorf("gollm %s is not tried", name)
		}
	}
}

// leaves are the commands without subcommands, by their paths without the root.
func leaves(cmd *cobra.Command) []string {
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.HasSubCommands() {
			all = append(all, leaves(sub)...)
		} else {
			_, path, _ := strings.Cut(sub.CommandPath(), " ")
			all = append(all, path)
		}
	}
	return all
}

// A screen that cannot be written says so.
func TestScreenPassesErrorsOn(t *testing.T) {
	if _, err := io.WriteString(newScreen(full{}), "a"); err == nil {
		t.Error("a full disk is no error")
	}
}
