package openmodel

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
)

// TemplateFlags say how a conversation becomes a prompt.
type TemplateFlags struct {
	System   string // what the model is told before the conversation
	Template string // a built-in format or a file; "" is the model's own
}

// Register registers the flags; system is the help of --system.
func (t *TemplateFlags) Register(cmd *cobra.Command, system string) {
	cmd.Flags().StringVar(&t.System, "system", "", system)
	t.RegisterTemplate(cmd)
}

// RegisterTemplate registers --template alone.
func (t *TemplateFlags) RegisterTemplate(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.Template, "template", "", "chat template: a Jinja file, or one of "+
		strings.Join(chat.Names(), ", ")+" (default: that of the model)")
	_ = cmd.RegisterFlagCompletionFunc("template", // fails only for a flag that does not exist
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return chat.Names(), cobra.ShellCompDirectiveDefault // and files
		})
}

// Speaker turns conversations into tokens.
type Speaker struct {
	template  *chat.Template
	tok       *tokenizer.Tokenizer
	NoSpecial bool   // refuse messages with the text of a special token
	flag      string // the flag that names the template, with its value; "" where none does
}

// NewSpeaker finds the template: the one that the flag names, the model's own, or
// the built-in format that the vocabulary calls for, of which warn tells.
func (t *TemplateFlags) NewSpeaker(m *Model, warn func(format string, args ...any)) (*Speaker, error) {
	s := &Speaker{tok: m.Tokenizer}
	source, err := m.File.StringOr("tokenizer.chat_template", "")
	if err != nil {
		return nil, err
	}
	switch {
	case t.Template != "":
		s.flag = "--template " + t.Template
		s.template, err = namedTemplate(t.Template)
		if lacks := lackingTokens(m.Tokenizer, t.Template); len(lacks) > 0 {
			warn("the format %s needs the tokens %s, which %s does not have: it reads them as plain text, and was probably trained with another format",
				t.Template, strings.Join(lacks, " "), m.File.Path())
		}
	case source != "":
		if s.template, err = chat.Parse(source); err != nil {
			err = fmt.Errorf("%s: %w; --template takes another one", m.File.Path(), err)
		}
	default:
		s.template, err = detectTemplate(m, warn)
	}
	return s, err
}

// PlainSpeaker finds the template where no model is open: the one that the flag names,
// or own, that of the file at path.
func (t *TemplateFlags) PlainSpeaker(tok *tokenizer.Tokenizer, path, own string) (*Speaker, error) {
	s := &Speaker{tok: tok}
	var err error
	if t.Template != "" {
		s.template, err = namedTemplate(t.Template)
		return s, err
	}
	if s.template, err = chat.Parse(own); err != nil {
		return nil, fmt.Errorf("%s: %w; --template takes another one", path, err)
	}
	return s, nil
}

// namedTemplate is a built-in format or the template in a file.
func namedTemplate(name string) (*chat.Template, error) {
	if t, err := chat.Builtin(name); err == nil {
		return t, nil
	}
	b, err := userfile.ReadLimited(name, userfile.MaxSpec)
	if err != nil {
		return nil, fmt.Errorf("--template %s is neither a format (%s) nor a file that can be read: %w", name, strings.Join(chat.Names(), ", "), err)
	}
	if text := string(b); !strings.Contains(text, "{{") || !strings.Contains(text, "messages") {
		return nil, fmt.Errorf("--template %s is no chat template: it prints no messages; want a Jinja file, or one of the formats %s", name, strings.Join(chat.Names(), ", "))
	}
	t, err := chat.Parse(string(b))
	if err != nil {
		return nil, fmt.Errorf("--template %s: %w", name, err)
	}
	return t, nil
}

// lackingTokens is the tokens of a built-in format that a vocabulary does not have,
// in the order of the format.
func lackingTokens(tok *tokenizer.Tokenizer, format string) []string {
	return slices.DeleteFunc(chat.Tokens(format), func(text string) bool { _, ok := tok.ID(text); return ok })
}

// detectTemplate is the format that the vocabulary calls for.
func detectTemplate(m *Model, warn func(format string, args ...any)) (*chat.Template, error) {
	name, ok := chat.Detect(func(token string) bool { _, ok := m.Tokenizer.ID(token); return ok })
	if !ok {
		return nil, fmt.Errorf("%s has no chat template and no tokens of a known one: it is probably not made for conversations; plain gollm generate continues a text, and --template names a format",
			m.File.Path())
	}
	warn("%s has no chat template; its vocabulary suggests the format %s, which is used (--template takes another one)", m.File.Path(), name)
	return chat.Builtin(name)
}

// Encode turns a conversation into the tokens that the model answers.
func (s *Speaker) Encode(ctx context.Context, messages []chat.Message) ([]int32, error) {
	for _, m := range messages {
		if s.NoSpecial && m.Role != "assistant" && s.tok.HasSpecial(m.Content) {
			return nil, fmt.Errorf("the %s message contains the text of a special token, which --no-special refuses in a conversation: a template cannot tell it from its own; take it out, or leave out --no-special", m.Role)
		}
	}
	text, err := s.Text(ctx, messages)
	if err != nil && s.flag != "" {
		return nil, fmt.Errorf("%s: %w", s.flag, err)
	}
	if err != nil {
		return nil, err
	}
	return (&TokenFlags{}).Encode(s.tok, text), nil
}

// Text turns a conversation into the text that the model continues.
func (s *Speaker) Text(ctx context.Context, messages []chat.Message) (string, error) {
	return s.Render(ctx, chat.Conversation{Messages: messages, AddGenerationPrompt: true})
}

// Render is Text with all that a conversation may have but the special tokens, which are the model's.
func (s *Speaker) Render(ctx context.Context, c chat.Conversation) (string, error) {
	c.BOS, c.EOS = s.tok.Text(s.tok.BOS()), s.tok.Text(s.tok.EOS())
	return s.template.Render(ctx, c)
}

// Calls is how the template writes calls of functions, nil where it does not.
func (s *Speaker) Calls() *chat.CallFormat { return s.template.Calls() }

// Conversation is the system prompt, if there is one, the turns so far and the
// next message.
func Conversation(system string, turns []chat.Message, text string) []chat.Message {
	all := append(ConversationSystem(system), turns...)
	return append(all, chat.Message{Role: "user", Content: text})
}

// ConversationSystem is the message of a system prompt, none where it is empty.
func ConversationSystem(system string) []chat.Message {
	if system == "" {
		return nil
	}
	return []chat.Message{{Role: "system", Content: system}}
}
