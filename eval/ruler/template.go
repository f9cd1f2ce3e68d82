package ruler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// templates are the chat templates that official files are made with, and those
// of the Mistral tokenizers; {t} is the task. The text of BOS is part of some:
// a tokenizer that adds one must not double it.
var templates = map[string]string{
	"base":           "{t}",
	"meta-chat":      "[INST] {t} [/INST]",
	"meta-llama3":    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{t}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
	"llama-3":        "<|start_header_id|>user<|end_header_id|> {t}<|eot_id|><|start_header_id|>assistant<|end_header_id|>",
	"mistral-v1":     "<s> [INST] {t} [/INST]",
	"mistral-v3":     "<s>[INST] {t}[/INST]",
	"mistral-tekken": "<s>[INST]{t}[/INST]",
}

// TemplateNames lists the chat templates.
func TemplateNames() []string { return slices.Sorted(maps.Keys(templates)) }

// FindTemplate is the template of that name, or text itself where it has the
// slot {t}.
func FindTemplate(text string) (string, error) {
	if t, ok := templates[text]; ok {
		return t, nil
	}
	if strings.Contains(text, "{t}") {
		return text, nil
	}
	return "", fmt.Errorf("ruler: no chat template is called %q; want one of %s, or a text with {t} where the task goes", text, strings.Join(TemplateNames(), ", "))
}
