package published

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/table"
)

// questions are those of a data set of testdata.
func questions(t *testing.T, s *Suite, set, folder string, o *Options) []Question {
	t.Helper()
	d, err := s.Set(set)
	if err != nil {
		t.Fatal(err)
	}
	files, err := table.Files("testdata/"+folder, d.File)
	if err != nil {
		t.Fatal(err)
	}
	var all []Question
	for _, f := range files {
		for r, err := range table.Rows(f) {
			if err != nil {
				t.Fatal(err)
			}
			list, err := d.Questions(r.JSON, len(all), o)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, list...)
		}
	}
	return all
}

// TestEverySet reads every data set of testdata; its right answer has the full score.
func TestEverySet(t *testing.T) {
	for _, s := range []struct {
		suite  *Suite
		folder string
		own    *Wording
	}{{mrcr, "mrcr", nil}, {scbench, "scbench", OwnShared}, {infinitebench, "infinitebench", OwnInfinite}} {
		for _, d := range s.suite.Sets {
			all := questions(t, s.suite, d.Name, s.folder, &Options{Wording: s.own, Apart: true})
			if len(all) < 2 {
				t.Errorf("%s has %d questions", d.Name, len(all))
			}
			for _, q := range all {
				if q.Most < 1 || q.Split < 1 || q.Split > len(q.Text) || s.suite == scbench != q.Hidden {
					t.Errorf("%s: %d tokens, the question from byte %d of %d, hidden %v", d.Name, q.Most, q.Split, len(q.Text), q.Hidden)
				}
			}
			if d.Unscored != "" || d.Name == "scbench_qa_chn" { // whose official score takes a text for a list of characters
				continue
			}
			a := all[0].Answer
			gold, err := readLabel(a.Truth)
			if err != nil {
				t.Fatal(err)
			}
			a.Prediction = strings.Trim(strings.NewReplacer(`","`, " ", `\n`, "\n").Replace(string(a.Truth)), `[]"`)
			if d.Name == "longbook_choice_eng" || d.Name == "code_debug" || d.Name == "scbench_choice_eng" {
				names, _ := gold.texts()
				a.Prediction = names[1] + "."
			}
			if d.Name == "longdialogue_qa_eng" || strings.Contains(d.Name, "longbook_qa") {
				names, _ := gold.texts()
				a.Prediction = names[0]
			}
			if score, err := d.Grade(&a); score != 1 || err != nil {
				t.Errorf("%s: the right answer %q to %s has the score %v, %v", d.Name, a.Prediction, a.Truth, score, err)
			}
			a.Prediction = "?"
			if score, err := d.Grade(&a); score != 0 || err != nil {
				t.Errorf("%s: a wrong answer has the score %v, %v", d.Name, score, err)
			}
		}
	}
}

// TestSharedText asks several questions about one text: each by itself of the same text, or
// in a conversation whose first prompt is the same.
func TestSharedText(t *testing.T) {
	for _, apart := range []bool{true, false} {
		all := questions(t, scbench, "scbench_kv", "scbench", &Options{Wording: OwnShared, Apart: apart, Turns: 2})
		if len(all) != 4 {
			t.Fatalf("%d questions of two rows of which two are asked, want 4", len(all))
		}
		a, b := all[0], all[1]
		if before := a.Text[:a.Split]; before != b.Text[:b.Split] || a.Text == b.Text {
			t.Errorf("apart %v: two questions of a row are to %d and %d bytes of text", apart, a.Split, b.Split)
		}
		asked, first := b.Text[b.Split:], strings.Contains(b.Text, strings.TrimSpace(a.Text[strings.LastIndex(a.Text, "Question:"):]))
		if first == apart {
			t.Errorf("apart %v: the second prompt has the first question: %v", apart, first)
		}
		gold, _ := readLabel(a.Answer.Truth)
		if text, _ := gold.text(); !apart && !strings.HasPrefix(asked, text) {
			t.Errorf("the second question follows %.40q, want the right answer %s to the first", asked, text)
		}
		if !apart && (len(b.Talk) != 3 || b.Talk[1].Role != "assistant" || b.Talk[0].Content != b.Text[:b.Split]) {
			t.Errorf("the conversation is %v", b.Talk)
		}
	}
}

// TestTurnsOfTasks takes only the questions of one task out of a file of two.
func TestTurnsOfTasks(t *testing.T) {
	for set, want := range map[string]int{"scbench_repoqa_and_kv.scbench_kv": 2, "scbench_repoqa_and_kv.scbench_repoqa": 4} {
		all := questions(t, scbench, set, "scbench", &Options{Wording: OwnShared})
		if len(all) != want {
			t.Errorf("%s has %d questions, want %d", set, len(all), want)
		}
		for _, q := range all {
			if q.Answer.Task == "" || !strings.HasSuffix(set, q.Answer.Task) || q.Answer.Repository != "made/up" {
				t.Errorf("%s: a question of %s, %s", set, q.Answer.Task, q.Answer.Repository)
			}
		}
	}
}

// TestKVPressHides hides a question unless it is known.
func TestKVPressHides(t *testing.T) {
	for _, known := range []bool{false, true} {
		all := questions(t, kvpress, "qa_1", "kvpress/4096", &Options{Known: known})
		if len(all) != 2 || all[0].Hidden == known || !strings.HasPrefix(all[0].Text[all[0].Split:], "Question:") || all[0].Prefix == "" || all[0].Most != 16 {
			t.Errorf("known %v: %+v", known, all[0])
		}
	}
}

// checkout writes files with prompts as the official repositories have them.
func checkout(t *testing.T, file, source string) string {
	dir := t.TempDir()
	path := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCheckout reads prompts out of Python: escapes, sums, texts in parentheses, comments.
func TestCheckout(t *testing.T) {
	dir := checkout(t, infiniteFile, `other = {"passkey": "no"}
gpt4_templates = {
    # "passkey": "not this",
    "passkey": "Say \"it\".\n\n{context}" + '\n{input}',  # noqa
    "x": 'a\'b'
}
`)
	w, err := LoadInfinite(dir, "gpt4")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Text["passkey"]; len(got) != 1 || got[0] != "Say \"it\".\n\n{context}\n{input}" || w.Text["x"][0] != "a'b" || !strings.HasPrefix(w.Name, "of a checkout") {
		t.Errorf("%q is %q", w.Name, w.Text)
	}
	if _, err := LoadInfinite(dir, "claude2"); err == nil || !strings.Contains(err.Error(), "no dictionary claude2_templates") {
		t.Errorf("prompts that are not there: %v", err)
	}
	if _, err := LoadInfinite(t.TempDir(), "gpt4"); err == nil || !strings.Contains(err.Error(), infiniteFile) {
		t.Errorf("no checkout: %v", err)
	}
	for _, broken := range []string{`"a" "b"`, `"a": `, `"a": "b`, `"a": ("b"`, `"a": "b" +`} {
		if _, err := LoadInfinite(checkout(t, infiniteFile, "gpt4_templates = {\n"+broken), "gpt4"); err == nil {
			t.Errorf("%s is read", broken)
		}
	}
	shared := `multiturn_templates = {"scbench_qa_eng": "1 {context} {question}", "scbench_kv": "1 {context} {input}"}
multiturn_templates_scdq = {"scbench_qa_eng": ("2 {context}", "3 {question}"), "scbench_kv": "2 {context}"}
multiturn_follow_up_templates = {"scbench_qa_eng": "{pre_ans} 4 {question}", "scbench_kv": "{pre_ans} 4 {input}"}
multiturn_follow_up_templates_in_chat_tempate = {"scbench_qa_eng": "5 {question}", "scbench_kv": "5 {input}"}
`
	if w, err = LoadShared(checkout(t, sharedFile, shared)); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{"scbench_qa_eng": "3 ", "scbench_kv": "5 "} {
		q := questions(t, scbench, set, "scbench", &Options{Wording: w, Apart: true})[0]
		if !strings.HasPrefix(q.Text, "2 The text") || !strings.HasPrefix(q.Text[q.Split:], want) {
			t.Errorf("%s: %.20q and then %.20q", set, q.Text, q.Text[q.Split:])
		}
		q = questions(t, scbench, set, "scbench", &Options{Wording: w})[1]
		if !strings.HasPrefix(q.Text, "1 The text") || !strings.Contains(q.Text[q.Split:], " 4 ") || !strings.HasPrefix(q.Talk[2].Content, "5 ") {
			t.Errorf("%s: %.20q and then %.20q, in a template %.20q", set, q.Text, q.Text[q.Split:], q.Talk[2].Content)
		}
	}
}

// TestWrongRows refuses rows in one sentence that names the field.
func TestWrongRows(t *testing.T) {
	for _, c := range []struct {
		suite    *Suite
		set, row string
		want     string
	}{
		{mrcr, "2needle", `{}`, "no field prompt"},
		{mrcr, "2needle", `{"prompt":"[]","answer":"a","random_string_to_prepend":"x","n_needles":4}`, "n_needles is 4 in a file of 2needle"},
		{mrcr, "2needle", `{"prompt":"[]","answer":"a","random_string_to_prepend":"x","n_needles":2}`, "ends with a message of the user"},
		{mrcr, "2needle", `{"prompt":"x","answer":"a","random_string_to_prepend":"x","n_needles":2}`, "want a list of messages"},
		{mrcr, "2needle", `{"prompt":"[{\"role\":\"tool\",\"content\":\"\"}]","answer":"a","random_string_to_prepend":"x","n_needles":2}`, `role "tool"`},
		{mrcr, "2needle", `{"prompt":"[]","answer":"a","n_needles":2}`, "no field random_string_to_prepend"},
		{scbench, "scbench_kv", `{"context":"c"}`, "no field multi_turns"},
		{scbench, "scbench_kv", `{"multi_turns":[{"input":"q","answer":"a"}]}`, "no field context"},
		{scbench, "scbench_kv", `{"context":"c","multi_turns":[{"answer":"a"}]}`, "multi_turns[0]: no field input"},
		{scbench, "scbench_kv", `{"context":"c","multi_turns":[{"input":"q","answer":null}]}`, "null"},
		{scbench, "scbench_kv", `{"context":"c","multi_turns":[{"input":"q","answer":7}]}`, "want a text"},
		{scbench, "scbench_mf", `{"context":"c","multi_turns":[{"input":"q","answer":7}]}`, "in the words: The ... is"},
		{scbench, "scbench_mf", `{"context":"c","multi_turns":[{"input":"The x is","answer":"7"}]}`, "want a number"},
		{scbench, "scbench_choice_eng", `{"context":"c","multi_turns":[{"input":"q","answer":"a","options":["b","c"]}]}`, "has 2 texts"},
		{scbench, "scbench_choice_eng", `{"context":"c","multi_turns":[{"input":"q","answer":"a","options":["b","c","d","e"]}]}`, "none of the options"},
		{scbench, "scbench_repoqa_and_kv.scbench_kv", `{"context":"c","multi_turns":[{"input":"q","answer":"a","task":"x"}]}`, `task is "x"`},
		{infinitebench, "passkey", `{"context":"c","answer":"a"}`, "no field input"},
		{infinitebench, "passkey", `{"input":"c","answer":"a"}`, "no field context"},
		{infinitebench, "code_run", `{"context":"c","input":"x","answer":1}`, "calls no function"},
		{infinitebench, "math_find", `{"context":"c","input":"x","answer":1}`, "The ... of"},
		{infinitebench, "math_calc", `{"context":"c","input":"x","answer":"1"}`, "list of whole numbers"},
		{infinitebench, "code_debug", `{"context":"c","input":"x","answer":["b"],"options":["b"]}`, "has 1 texts"},
		{kvpress, "vt", `{"context":"c"}`, "no field task"},
		{kvpress, "vt", `{"task":"vt","context":"c","question":"q","answer_prefix":"","answer":[],"max_new_tokens":3}`, "no field answer"},
		{kvpress, "vt", `{"task":"vt","context":"c","question":"q","answer_prefix":"","answer":["a"],"max_new_tokens":0}`, "max_new_tokens is 0"},
		{kvpress, "vt", `{"task":"vt","context":3}`, "field context is of type number, want string"},
	} {
		d, err := c.suite.Set(c.set)
		if err != nil {
			t.Fatal(err)
		}
		w := OwnShared
		if c.suite == infinitebench {
			w = OwnInfinite
		}
		if _, err := d.Questions([]byte(c.row), 0, &Options{Wording: w}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want an error with %q", c.set, c.row, err, c.want)
		}
	}
}

// TestBins are those of the publication: a bin has its end, and not its beginning but for the
// first.
func TestBins(t *testing.T) {
	for tokens, want := range map[int]string{0: "below 4k", 4095: "below 4k", 4096: "4k-8k", 8192: "4k-8k", 8193: "8k-16k", 1 << 20: "512k-1024k", 1<<20 + 1: "above 1024k"} {
		if got := Bin(tokens); got != want {
			t.Errorf("%d tokens are in the bin %s, want %s", tokens, got, want)
		}
	}
	if names := bins(); len(names) != 10 || names[1] != "4k-8k" || names[9] != "above 1024k" {
		t.Errorf("%q", names)
	}
}

func FuzzQuestions(f *testing.F) {
	f.Add(`{"context":"c","multi_turns":[{"input":"The x is","answer":[1],"options":["1"]}],"prompt":"[]","input":"The x of func_1(2)","answer":"a","options":["a","b","c","d"],"task":"vt"}`)
	f.Fuzz(func(_ *testing.T, row string) {
		for _, s := range suites {
			for _, d := range s.Sets {
				for _, w := range []*Wording{OwnShared, OwnInfinite} {
					_, _ = d.Questions([]byte(row), 0, &Options{Wording: w})
				}
				_, _, _, _ = d.GradeLine([]byte(row))
			}
		}
	})
}
