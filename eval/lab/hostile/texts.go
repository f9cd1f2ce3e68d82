package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/internal/npy"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
	"github.com/gollm/gollm/weights"
)

// pick is one of all.
func pick[T any](all []T, rng *rand.Rand) T { return all[rng.IntN(len(all))] }

// oddTexts are numbers and words where readers go wrong.
var oddTexts = []string{
	"0", "1", "-1", "2", "64", "0.5", "1e9", "1e-300", "1e999", "NaN", "Inf", "-Inf", "0x10", "1_000", "9223372036854775808", "-9223372036854775808", "٣", "",
	"true", "null", "\x00", "\xff\xfe", "\u202e", "\x1b[2J", `"`, `\`, `\ud800`, "(", ")", "[", "]", "{", "}", ",", "=", ":", "+", " ", "\n",
}

// changeBytes changes a few places of b: bytes, cuts, repetitions and odd texts.
func changeBytes(b []byte, rng *rand.Rand) []byte {
	b = bytes.Clone(b)
	for range 1 + rng.IntN(4) {
		if len(b) == 0 {
			return []byte(pick(oddTexts, rng))
		}
		from := rng.IntN(len(b))
		to := min(len(b), from+rng.IntN(30))
		switch rng.IntN(6) {
		case 0:
			b[from] ^= 1 << rng.IntN(8)
		case 1:
			b = append(b[:from:from], b[to:]...)
		case 2:
			b = b[:from]
		case 3:
			b = append(b[:from:from], append([]byte(pick(oddTexts, rng)), b[from:]...)...)
		case 4:
			b = append(b[:from:from], append([]byte(pick(oddTexts, rng)), b[to:]...)...)
		default:
			b = append(b[:to:to], append(bytes.Repeat(b[from:to], 1+rng.IntN(3)), b[to:]...)...)
		}
	}
	return b
}

// startSpecs feeds texts of attention methods. One that is read is written so that it
// reads the same, and attends in a small model, if that takes it.
func startSpecs() (execution, error) {
	file, err := weights.Parse("hostile.gguf", small(device.F32, false, rand.New(rand.NewPCG(1, 2))).bytes())
	if err != nil {
		return nil, err
	}
	e, err := engineOf(file)
	if err != nil {
		return nil, err
	}
	methods := sparse.Methods()
	return func(rng *rand.Rand) ([]byte, string) {
		text := specText(methods, rng)
		if rng.IntN(5) == 0 {
			text = string(changeBytes([]byte(text), rng))
		}
		return []byte(text), feedSpec(e, text)
	}, nil
}

// engineOf is a model on one thread.
func engineOf(f *weights.File) (*engine.Engine, error) {
	vocab, err := tokenizer.FromMetadata(f)
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.New(vocab)
	if err != nil {
		return nil, err
	}
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		return nil, err
	}
	m, err := model.Load(f, dev)
	return &engine.Engine{File: f, Model: m, Tokenizer: tok, Device: dev}, err
}

// specText is one or two methods with options of their own, right ones and wrong ones.
func specText(methods []sparse.Entry, rng *rand.Rand) string {
	var b strings.Builder
	if rng.IntN(4) == 0 {
		b.WriteString(pick([]string{"prefill=", "decode=", "prefill=dense decode="}, rng))
	}
	for i := range 1 + rng.IntN(3) {
		if i > 0 {
			b.WriteString(pick([]string{"+", "+", "+", " + ", " ", ","}, rng))
		}
		m := pick(methods, rng)
		b.WriteString(m.Name)
		options := m.Options()
		if len(options) == 0 || rng.IntN(3) == 0 {
			continue
		}
		b.WriteString("(")
		for k := range 1 + rng.IntN(3) {
			if k > 0 {
				b.WriteString(",")
			}
			o := pick(options, rng)
			value := o.Default
			if rng.IntN(4) == 0 {
				value = pick(append(oddTexts, "3", "16", "128", "0.9"), rng)
			}
			fmt.Fprintf(&b, "%s=%v", o.Name, value)
		}
		b.WriteString(")")
	}
	return b.String()
}

// feedSpec reads a spec and attends by it.
func feedSpec(e *engine.Engine, text string) string {
	s, err := sparse.Parse(text)
	if err != nil {
		return refused("refused", err)
	}
	if again, err := sparse.Parse(s.String()); err != nil || again.String() != s.String() {
		return fmt.Sprintf("WRONG: %s reads back as %v, %v", s, again, err)
	}
	r, err := e.NewRunner(engine.Config{Context: 256, Attn: s})
	if err != nil {
		return refused("do not fit the model", err)
	}
	defer r.Close()
	q, err := r.Open()
	if err != nil {
		return refused("do not fit the model", err)
	}
	prompt := make([]int32, 150)
	for i := range prompt {
		prompt[i] = int32(3 + i%256)
	}
	if _, err = q.Generate(context.Background(), prompt, engine.Options{MaxTokens: 2, IgnoreEnd: true}); err != nil {
		return refused("fail with an error", err)
	}
	return "make two tokens"
}

// templateWords are what templates are made of.
var templateWords = []string{
	"messages", "m", "m.content", "m['role']", "loop.index0", "loop.last", "bos_token", "ns", "ns.x", "x", "'text'", `"q"`, "7", "-1", "2.5", "true", "none", "[1, 2]", "{'a': 1}",
	"namespace(x=0)", "range(9)", "range(999999999)", "raise_exception('no')", "strftime_now('%Y')", "m.content.split(' ')", "m.content[::2]", "messages[1:]", "x is defined",
	"x is string", "not x", "x | upper", "x | trim | length", "m | tojson", "messages | map(attribute='role') | list | join(',')", "x * 99999", "'ab' * 9999999", "x ~ x", "x ** 9 ** 9", "1 / 0",
	"x == 'user'", "'a' in x", "x if x else y", "dict(a=1).items()", "x | default('d')", "x | replace('a', 'b')", "x.y.z", "x()", "f(x)", "caller()",
}

// templateText is statements inside statements.
func templateText(rng *rand.Rand, depth int) string {
	var b strings.Builder
	for range 1 + rng.IntN(4) {
		word, inner := pick(templateWords, rng), ""
		if depth > 0 {
			inner = templateText(rng, depth-1)
		}
		switch rng.IntN(8) {
		case 0:
			fmt.Fprintf(&b, "{%% for %s in %s %%}%s{%% endfor %%}", pick([]string{"m", "x", "a, b"}, rng), word, inner)
		case 1:
			fmt.Fprintf(&b, "{%% if %s %%}%s{%% elif x %%}{%% else %%}%s{%% endif %%}", word, inner, pick(oddTexts, rng))
		case 2:
			fmt.Fprintf(&b, "{%%- set %s = %s -%%}", pick([]string{"x", "ns", "ns.x", "f"}, rng), word)
		case 3:
			fmt.Fprintf(&b, "{%% macro f(x) %%}%s{%% endmacro %%}", inner)
		case 4:
			fmt.Fprintf(&b, "{# %s #}%s", word, pick(oddTexts, rng))
		default:
			fmt.Fprintf(&b, "{{ %s }}", word)
		}
	}
	return b.String()
}

// templateTime is the time that a rendering may take.
const templateTime = 100 * time.Millisecond

// startTemplates feeds chat templates.
func startTemplates() (execution, error) {
	c := chat.Conversation{AddGenerationPrompt: true, BOS: "<s>", EOS: "</s>", Messages: []chat.Message{
		{Role: "system", Content: "be short"}, {Role: "user", Content: "one two"}, {Role: "assistant", Content: ""}, {Role: "user", Content: "é\x00{{ x }}"},
	}}
	return func(rng *rand.Rand) ([]byte, string) {
		source := templateText(rng, rng.IntN(4))
		if rng.IntN(3) == 0 {
			source = string(changeBytes([]byte(source), rng))
		}
		t, err := chat.Parse(source)
		if err != nil {
			return []byte(source), refused("refused", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), templateTime)
		defer cancel()
		if _, err := t.Render(ctx, c); err != nil {
			return []byte(source), refused("fail with an error", err)
		}
		return []byte(source), "render"
	}, nil
}

// startArrays feeds NumPy files. What is read is written so that it reads the same.
func startArrays() (execution, error) {
	descrs := []string{"<f4", "<f2", "=f4", ">f4", "<f8", "|O", "<i4"}
	shapes := []string{"(2, 3)", "(6,)", "()", "(0,)", "(2, -3)", "(4294967296, 4294967296)", "(99999999999,)", "(1, 1, 1, 1, 1, 1, 1, 1, 6)", "(6", "6"}
	return func(rng *rand.Rand) ([]byte, string) {
		head := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", pick(descrs, rng), pick([]string{"False", "True", "0"}, rng), shapes[min(rng.IntN(2*len(shapes)), len(shapes)-1)])
		if rng.IntN(2) == 0 {
			head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
		}
		head += strings.Repeat(" ", rng.IntN(40)) + "\n"
		b := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), byte(len(head)>>8))
		b = append(b, head...)
		b = append(b, make([]byte, 24-rng.IntN(2)*rng.IntN(24))...)
		if rng.IntN(2) == 0 {
			b = changeBytes(b, rng)
		}
		a, err := npy.Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return b, refused("refused", err)
		}
		var out bytes.Buffer
		if err := npy.Write(&out, a); err != nil {
			return b, "WRONG: it is read and cannot be written: " + err.Error()
		}
		if _, err := npy.Read(&out, int64(out.Len())); err != nil {
			return b, "WRONG: it does not read back: " + err.Error()
		}
		return b, "read"
	}, nil
}

// startLines feeds files of JSON lines to all who read some: data and answers of RULER and
// LongBench.
func startLines() (execution, error) {
	lines := []string{
		`{"index": 0, "input": "a b", "outputs": ["b", "c"], "length": 1, "answer_prefix": " c", "token_position_answer": 3}`,
		`{"index": 0, "pred": "a", "input": "x", "outputs": ["a"], "others": {"id": 3}, "truncation": -1, "length": -1}`,
		`{"pred": "a", "answers": ["a", "b"], "all_classes": null, "length": 12, "gollm": {"line": 0, "score": 1}}`,
		`{"input": "q", "context": "c", "answers": ["a"], "length": 5, "dataset": "qasper", "language": "en", "all_classes": ["x"], "_id": "1"}`,
		`{"index": "x", "input": "é\ud800", "output": "b", "split_char": 2}`,
		"[" + strings.Repeat("[", 2000), `{"a":` + strings.Repeat(`{"a":`, 2000), "null", "[]", "1e999", "",
	}
	tasks := ruler.Tasks()
	return func(rng *rand.Rand) ([]byte, string) {
		var b []byte
		for range 1 + rng.IntN(4) {
			line := []byte(pick(lines[:5], rng))
			if rng.IntN(8) == 0 {
				line = []byte(pick(lines, rng))
			}
			if rng.IntN(3) == 0 {
				line = changeBytes(line, rng)
			}
			b = append(append(b, line...), '\n')
		}
		return b, feedLines(b, pick(tasks, rng), rng)
	}, nil
}

// feedLines reads a file in every way.
func feedLines(b []byte, task ruler.Task, rng *rand.Rand) string {
	plain := jsonl.NewReader(bytes.NewReader(b))
	for {
		if _, _, err := plain.Next(); err != nil {
			break
		}
	}
	rows := ruler.NewReader("hostile.jsonl", bytes.NewReader(b))
	read := 0
	for {
		row, err := rows.Next()
		if err != nil {
			if result := refused("", err); result != "" {
				return result
			}
			break
		}
		read++
		if at, ok := row.Split(task, nil); ok && (at < 0 || at > len(row.Input)) {
			return fmt.Sprintf("WRONG: the question begins at %d of %d", at, len(row.Input))
		}
		if err := ruler.WriteRow(io.Discard, task, &row); err != nil {
			return "WRONG: a row cannot be written: " + err.Error()
		}
	}
	scored, err := ruler.ScoreFile("hostile.jsonl", bytes.NewReader(b), task, ruler.Official)
	if err == nil && (scored.Score < 0 || scored.Score > 100) {
		return fmt.Sprintf("WRONG: a score of %v", scored.Score)
	}
	if err != nil && refused("", err) != "" {
		return refused("", err)
	}
	if _, err := longbench.ScoreFile("hostile.jsonl", bytes.NewReader(b), pick(longbench.Datasets(), rng), longbench.Options{}); err != nil && refused("", err) != "" {
		return refused("", err)
	}
	switch {
	case read > 0 || scored.Samples != nil:
		return "read in part"
	}
	return "refused"
}
