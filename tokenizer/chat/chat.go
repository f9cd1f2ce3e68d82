package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Message is one turn.
type Message struct {
	Role    string // system, user or assistant; a template may know others, as tool
	Content string

	Calls  []Call // functions that the assistant calls
	CallID string // of a message of the role tool: the call that Content answers
}

// Call is a call of a function.
type Call struct {
	ID        string
	Name      string
	Arguments json.RawMessage // an object
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
	// Quote changes every string of the messages and tools before the template sees it,
	// see [tokenizer.Tokenizer.Quote]; nil leaves them.
	Quote func(string) (string, error)
}

// quoted is the conversation with the strings of its messages changed by Quote; those of
// JSON are when it is read.
func (c Conversation) quoted() (Conversation, error) {
	if c.Quote == nil {
		return c, nil
	}
	var err error
	quote := func(s string) string {
		text, why := c.Quote(s)
		if err == nil {
			err = why
		}
		return text
	}
	messages := make([]Message, len(c.Messages))
	for i, m := range c.Messages {
		m.Role, m.Content, m.CallID = quote(m.Role), quote(m.Content), quote(m.CallID)
		m.Calls = slices.Clone(m.Calls)
		for j := range m.Calls {
			m.Calls[j].ID, m.Calls[j].Name = quote(m.Calls[j].ID), quote(m.Calls[j].Name)
		}
		if err != nil {
			return c, fmt.Errorf("chat: message %d: %w", i, err)
		}
		messages[i] = m
	}
	c.Messages = messages
	return c, nil
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
	c, err := c.quoted()
	if err != nil {
		return "", err
	}
	if t.format != nil {
		return t.format(c)
	}
	return t.renderJinja(ctx, c)
}
