package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Message is one turn.
type Message struct {
	Role    string // system, user or assistant; a template may know others
	Content string
}

// Conversation is what a template is rendered with.
type Conversation struct {
	Messages []Message
	// AddGenerationPrompt ends the text where the model's answer begins.
	AddGenerationPrompt bool
	// BOS and EOS are the texts of the tokens, "" when the vocabulary has none.
	BOS, EOS string
	// Tools are function descriptions in JSON, absent for none.
	Tools []json.RawMessage
	// Date is today for templates that print it. When it is zero they print the
	// date that they were written with.
	Date time.Time
}

// Template renders conversations. It may be used from several goroutines.
type Template struct {
	name   string
	source string        // Jinja, or
	limit  time.Duration // of one rendering
	format func(Conversation) (string, error)
}

// maxSource is the largest template, in bytes.
const maxSource = 64 << 10

// Parse takes the Jinja template of a model file.
func Parse(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("chat: the template has %d bytes, at most %d are supported", len(source), maxSource)
	}
	if err := checkJinja(source); err != nil {
		return nil, err
	}
	return &Template{name: "jinja", source: source, limit: maxTime}, nil
}

// Name returns the name of a built-in format, "jinja" for a parsed template.
func (t *Template) Name() string { return t.name }

// Render returns the text of a conversation. It stops when ctx ends, and by itself
// when the template is not done after a bounded amount of work or two seconds.
func (t *Template) Render(ctx context.Context, c Conversation) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("chat: render: %w", err)
	}
	if t.format != nil {
		return t.format(c)
	}
	return t.renderJinja(ctx, c)
}
