package chat

import (
	"fmt"
	"slices"
	"strings"
)

// builtin is a format for files without a template.
type builtin struct {
	name   string
	tokens []string // a vocabulary that has all of these calls for the format
	format func(Conversation) (string, error)
}

// formats are in the order in which Detect tries them. Those of mistral are for v0.1
// and v0.2 of the instruct models, for v0.3, and for those with the tekken vocabulary.
var formats = []builtin{
	{"llama3", []string{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, formatLlama3},
	{"chatml", []string{"<|im_start|>", "<|im_end|>"}, formatChatML},
	{"mistral-tekken", []string{"[INST]", "[/INST]", "<SPECIAL_20>"}, mistral{open: "[INST]", close: "[/INST]"}.format},
	{"mistral-v3", []string{"[INST]", "[/INST]"}, mistral{open: "[INST] ", close: "[/INST]", lead: " "}.format},
	{"mistral-v1", nil, mistral{open: "[INST] ", close: " [/INST]", lead: " ", systemFirst: true}.format},
	{"llama2", []string{"<s>", "</s>", "<unk>"}, formatLlama2},
}

// Builtin returns a built-in format by its name, one of [Names].
func Builtin(name string) (*Template, error) {
	for _, b := range formats {
		if b.name == name {
			return &Template{name: b.name, format: b.format}, nil
		}
	}
	return nil, fmt.Errorf("chat: unknown format %q, there are %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of the built-in formats, sorted.
func Names() []string {
	var names []string
	for _, b := range formats {
		names = append(names, b.name)
	}
	slices.Sort(names)
	return names
}

// Tokens returns the tokens that a vocabulary must have for a built-in format, nil
// where name is none.
func Tokens(name string) []string {
	for _, b := range formats {
		if b.name == name {
			return slices.Clone(b.tokens)
		}
	}
	return nil
}

// Detect returns the name of the format that a vocabulary calls for. has reports
// whether a text is a token. A vocabulary of Llama-2's kind does not tell llama2
// from mistral-v1: the answer is llama2.
func Detect(has func(token string) bool) (name string, ok bool) {
	for _, b := range formats {
		if len(b.tokens) > 0 && !slices.ContainsFunc(b.tokens, func(t string) bool { return !has(t) }) {
			return b.name, true
		}
	}
	return "", false
}

// formatLlama3 is the format of Llama-3, which has a system turn only when there is
// a system message; the dates that Llama-3.1 adds come from its own template.
func formatLlama3(c Conversation) (string, error) {
	var b strings.Builder
	b.WriteString(c.BOS)
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "<|start_header_id|>%s<|end_header_id|>\n\n%s<|eot_id|>", m.Role, strings.TrimSpace(m.Content))
	}
	if c.AddGenerationPrompt {
		b.WriteString("<|start_header_id|>assistant<|end_header_id|>\n\n")
	}
	return b.String(), nil
}

func formatChatML(c Conversation) (string, error) {
	var b strings.Builder
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "<|im_start|>%s\n%s<|im_end|>\n", m.Role, m.Content)
	}
	if c.AddGenerationPrompt {
		b.WriteString("<|im_start|>assistant\n")
	}
	return b.String(), nil
}

// turns splits a conversation into the system message and the turns of user and
// assistant, which have to alternate.
func turns(c Conversation) (system string, rest []Message, err error) {
	rest = c.Messages
	if len(rest) > 0 && rest[0].Role == "system" {
		system, rest = rest[0].Content, rest[1:]
	}
	for i, m := range rest {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return "", nil, fmt.Errorf("chat: message %d is of role %q, want %q: turns of user and assistant have to alternate", len(c.Messages)-len(rest)+i, m.Role, want)
		}
	}
	return system, rest, nil
}

// formatLlama2 puts the system message into the first user turn.
func formatLlama2(c Conversation) (string, error) {
	system, rest, err := turns(c)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i, m := range rest {
		content := strings.TrimSpace(m.Content)
		if i == 0 && system != "" {
			content = "<<SYS>>\n" + system + "\n<</SYS>>\n\n" + content
		}
		if m.Role == "user" {
			b.WriteString(c.BOS + "[INST] " + strings.TrimSpace(content) + " [/INST]")
		} else {
			b.WriteString(" " + content + " " + c.EOS)
		}
	}
	return b.String(), nil
}

// mistral is a format of Mistral.
type mistral struct {
	open, close string // around a user's turn
	lead        string // begins an answer
	systemFirst bool   // the system message is in the first user turn, else in the last
}

func (f mistral) format(c Conversation) (string, error) {
	system, rest, err := turns(c)
	if err != nil {
		return "", err
	}
	holder := 0 // the turn with the system message
	if !f.systemFirst {
		holder = (len(rest) - 1) / 2 * 2
	}
	var b strings.Builder
	b.WriteString(c.BOS)
	for i, m := range rest {
		switch {
		case m.Role == "assistant":
			b.WriteString(f.lead + strings.TrimSpace(m.Content) + c.EOS)
		case i == holder && system != "":
			b.WriteString(f.open + system + "\n\n" + m.Content + f.close)
		default:
			b.WriteString(f.open + m.Content + f.close)
		}
	}
	return b.String(), nil
}
