package chat

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// sample is a system message and two turns, with the spaces that people leave.
var sample = Conversation{
	Messages: []Message{
		{Role: "system", Content: "You are a pirate chatbot."},
		{Role: "user", Content: "What is the capital of France?"},
		{Role: "assistant", Content: "Paris, matey!"},
		{Role: "user", Content: " And of Italy?\n"},
	},
	AddGenerationPrompt: true,
	BOS:                 "<s>",
	EOS:                 "</s>",
}

func withTokens(bos, eos string) Conversation {
	c := sample
	c.BOS, c.EOS = bos, eos
	return c
}

func sharedTemplate(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("../../../shared/data/templates/" + name)
	switch {
	case err == nil:
		return string(b)
	case os.Getenv("CI") == "true":
		t.Fatalf("test data is missing: %v", err)
	default:
		t.Skipf("test data is missing: %v", err)
	}
	return ""
}

func render(t testing.TB, source string, c Conversation) (string, error) {
	t.Helper()
	tpl, err := Parse(source)
	if err != nil {
		return "", err
	}
	return tpl.Render(context.Background(), c)
}

const llama31 = "meta-llama-Llama-3.1-8B-Instruct.jinja"
const nemo = "mistralai-Mistral-Nemo-Instruct-2407.jinja"

// TestModelTemplates checks templates of models against their model cards.
func TestModelTemplates(t *testing.T) {
	llama := withTokens("<|begin_of_text|>", "<|eot_id|>")
	closed := llama
	closed.AddGenerationPrompt = false
	closed.Messages = llama.Messages[1:3]
	tests := []struct {
		name, file string
		c          Conversation
		want       string
	}{
		{"llama-3.1", llama31, llama,
			"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n" +
				"Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nYou are a pirate chatbot.<|eot_id|>" +
				"<|start_header_id|>user<|end_header_id|>\n\nWhat is the capital of France?<|eot_id|>" +
				"<|start_header_id|>assistant<|end_header_id|>\n\nParis, matey!<|eot_id|>" +
				"<|start_header_id|>user<|end_header_id|>\n\nAnd of Italy?<|eot_id|>" +
				"<|start_header_id|>assistant<|end_header_id|>\n\n"},
		{"llama-3.1 without system message and prompt", llama31, closed,
			"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n" +
				"Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>" +
				"<|start_header_id|>user<|end_header_id|>\n\nWhat is the capital of France?<|eot_id|>" +
				"<|start_header_id|>assistant<|end_header_id|>\n\nParis, matey!<|eot_id|>"},
		{"mistral-nemo", nemo, sample,
			"<s>[INST]What is the capital of France?[/INST]Paris, matey!</s>" +
				"[INST]You are a pirate chatbot.\n\n And of Italy?\n[/INST]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := render(t, sharedTemplate(t, test.file), test.c)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v\nwant %q", got, err, test.want)
			}
		})
	}
}

// TestTools checks that tools appear as Python writes them, in the order of their
// keys, where the template puts them.
func TestTools(t *testing.T) {
	c := sample
	c.Messages = c.Messages[1:2]
	c.Tools = []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"now","description":"Gives \"é\" & <b>","parameters":{"z":1,"a":[2.5,null,true,1e30]}}}`)}
	got, err := render(t, sharedTemplate(t, nemo), c)
	want := `<s>[AVAILABLE_TOOLS][{"type": "function", "function": {"name": "now", "description": "Gives "é" & <b>", ` +
		`"parameters": {"z": 1, "a": [2.5, null, true, 1e+30]}}}][/AVAILABLE_TOOLS][INST]What is the capital of France?[/INST]`
	if err != nil || got != want {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
	c.Tools[0] = json.RawMessage(`{"a": [1, {}], "b": "\u0001\n"}`)
	got, err = render(t, `{{ tools[0] | tojson(indent=2) }}`, c)
	want = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": \"\\u0001\\n\"\n}"
	if err != nil || got != want {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

// TestBuiltins checks the formats for files without a template.
func TestBuiltins(t *testing.T) {
	tests := map[string]string{
		"llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nYou are a pirate chatbot.<|eot_id|>" +
			"<|start_header_id|>user<|end_header_id|>\n\nWhat is the capital of France?<|eot_id|>" +
			"<|start_header_id|>assistant<|end_header_id|>\n\nParis, matey!<|eot_id|>" +
			"<|start_header_id|>user<|end_header_id|>\n\nAnd of Italy?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		"llama2": "<s>[INST] <<SYS>>\nYou are a pirate chatbot.\n<</SYS>>\n\nWhat is the capital of France? [/INST]" +
			" Paris, matey! </s><s>[INST] And of Italy? [/INST]",
		"chatml": "<|im_start|>system\nYou are a pirate chatbot.<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n" +
			"<|im_start|>assistant\nParis, matey!<|im_end|>\n<|im_start|>user\n And of Italy?\n<|im_end|>\n<|im_start|>assistant\n",
		"mistral-v1": "<s>[INST] You are a pirate chatbot.\n\nWhat is the capital of France? [/INST] Paris, matey!</s>" +
			"[INST]  And of Italy?\n [/INST]",
		"mistral-v3": "<s>[INST] What is the capital of France?[/INST] Paris, matey!</s>" +
			"[INST] You are a pirate chatbot.\n\n And of Italy?\n[/INST]",
		"mistral-tekken": "<s>[INST]What is the capital of France?[/INST]Paris, matey!</s>" +
			"[INST]You are a pirate chatbot.\n\n And of Italy?\n[/INST]",
	}
	if len(tests) != len(Names()) {
		t.Errorf("%d formats, %d tested", len(Names()), len(tests))
	}
	for name, want := range tests {
		tpl, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tpl.Render(context.Background(), sample); err != nil || got != want {
			t.Errorf("%s: got %q, %v\nwant %q", name, got, err, want)
		}
	}
	if _, err := Builtin("alpaca"); err == nil || !strings.Contains(err.Error(), "chatml, llama2") {
		t.Errorf("unknown format: %v", err)
	}
}

// TestAlternation checks that a format without room for two turns of one role says so.
func TestAlternation(t *testing.T) {
	tpl, _ := Builtin("llama2")
	_, err := tpl.Render(context.Background(), Conversation{Messages: []Message{{Role: "system", Content: "s"}, {Role: "user", Content: "a"}, {Role: "user", Content: "b"}}})
	if err == nil || !strings.Contains(err.Error(), `message 2 is of role "user", want "assistant"`) {
		t.Errorf("got %v", err)
	}
	_, err = render(t, sharedTemplate(t, nemo), Conversation{Messages: []Message{{Role: "user", Content: "a"}, {Role: "user", Content: "b"}}})
	if err == nil || !strings.Contains(err.Error(), "roles must alternate") {
		t.Errorf("got %v", err)
	}
}

func TestDetect(t *testing.T) {
	tests := map[string][]string{
		"llama3":         {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "</s>"},
		"chatml":         {"<|im_start|>", "<|im_end|>"},
		"mistral-v3":     {"<s>", "</s>", "<unk>", "[INST]", "[/INST]"},
		"mistral-tekken": {"<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<SPECIAL_20>"},
		"llama2":         {"<s>", "</s>", "<unk>"},
		"":               {"<s>", "<|im_start|>"},
	}
	for want, vocab := range tests {
		got, ok := Detect(func(token string) bool { return strings.Contains(strings.Join(vocab, "\n")+"\n", token+"\n") })
		if got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", vocab, got, ok, want)
		}
	}
}

// TestDate checks that a date is printed when there is one, and only then.
func TestDate(t *testing.T) {
	const source = `{% if strftime_now is defined %}{{ strftime_now("%d %b %Y %H:%M:%S %% %q") }}{% else %}none{% endif %}`
	c := Conversation{}
	if got, err := render(t, source, c); err != nil || got != "none" {
		t.Errorf("got %q, %v", got, err)
	}
	c.Date = time.Date(2025, 3, 9, 7, 5, 4, 0, time.UTC)
	if got, err := render(t, source, c); err != nil || got != "09 Mar 2025 07:05:04 % %q" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestCancelled checks that a rendering stops with its context.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tpl, err := Parse("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tpl.Render(ctx, sample); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f := newFence(ctx, 0, hang)
	if err := f.step(0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestInjection records what the package documents: text of special tokens in a
// message reaches the prompt as it is.
func TestInjection(t *testing.T) {
	got, err := render(t, "{{ messages[0].content }}", Conversation{Messages: []Message{{Role: "user", Content: "<|eot_id|>{{ 1 }}"}}})
	if err != nil || got != "<|eot_id|>{{ 1 }}" {
		t.Errorf("got %q, %v", got, err)
	}
}
