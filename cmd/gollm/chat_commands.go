package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/tokenizer/chat"
)

// chatCommand is a command of a conversation.
type chatCommand struct {
	name  string
	after string // what completion puts behind the name
	do    func(s *session, ctx context.Context, rest string) error
}

// chatCommands are the commands; chatHelp says what they do.
func chatCommands() []chatCommand {
	return []chatCommand{
		{"/bye", "", func(*session, context.Context, string) error { return io.EOF }},
		{"/clear", "", func(s *session, _ context.Context, _ string) error { return s.clear() }},
		{"/exit", "", func(*session, context.Context, string) error { return io.EOF }},
		{"/help", "", func(s *session, _ context.Context, _ string) error { return s.help() }},
		{"/load", " ", func(s *session, _ context.Context, rest string) error { return s.load(rest) }},
		{"/quit", "", func(*session, context.Context, string) error { return io.EOF }},
		{"/regen", "", func(s *session, ctx context.Context, _ string) error { return s.regen(ctx) }},
		{"/save", " ", func(s *session, _ context.Context, rest string) error { return s.save(rest) }},
		{"/stats", "", func(s *session, _ context.Context, _ string) error { return s.stats() }},
		{"/system", " ", func(s *session, _ context.Context, rest string) error { return s.setSystem(rest) }},
		{"/undo", "", func(s *session, _ context.Context, _ string) error { return s.undo() }},
	}
}

// handle runs a command or answers a message. io.EOF ends the conversation.
func (s *session) handle(ctx context.Context, text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if !strings.HasPrefix(text, "/") {
		return s.answer(ctx, text)
	}
	name, rest, _ := strings.Cut(text, " ")
	all := chatCommands()
	i := slices.IndexFunc(all, func(c chatCommand) bool { return c.name == name })
	if i < 0 {
		return s.refuse(fmt.Errorf("%s is no command; /help lists them, and a message that begins with / needs a space before it", console.Elide(name, maxTold)))
	}
	return all[i].do(s, ctx, strings.TrimSpace(rest))
}

// maxTold is the characters of a name that is told back.
const maxTold = 80

// refuse says what is wrong with a line, which ends the conversation only where
// nobody types.
func (s *session) refuse(err error) error {
	if !s.interactive {
		return err
	}
	s.say("gollm: %s", console.Message(err))
	return nil
}

// help lists the commands.
func (s *session) help() error {
	_, err := io.WriteString(s.errs, chatHelp)
	return err
}

// clear forgets the conversation.
func (s *session) clear() error {
	s.messages = nil
	s.say("The conversation is forgotten.")
	return nil
}

// setSystem changes or shows the system prompt.
func (s *session) setSystem(text string) error {
	if text == "" {
		if s.system == "" {
			s.say("There is no system prompt.")
			return nil
		}
		s.say("The system prompt is %q.", s.system)
		return nil
	}
	s.system, s.messages = text, nil
	s.say("The system prompt is set; the conversation begins anew.")
	return nil
}

// stats shows the last answer's speed and the context.
func (s *session) stats() error {
	if s.last != "" {
		s.say("%s", s.last)
	}
	if s.remote != nil {
		return nil
	}
	s.say("%d of %d tokens of context are used.", s.seq.Len(), s.runner.Context())
	return nil
}

// undo takes the last message and its answer back. The cache keeps what is before.
func (s *session) undo() error {
	if len(s.messages) == 0 {
		return s.refuse(errors.New("/undo: there is no message to take back"))
	}
	s.messages = s.messages[:len(s.messages)-2]
	s.say("The last message and its answer are taken back; %s left.", console.Plural(len(s.messages)/2, "turn"))
	return nil
}

// regen answers the last message again. Where there is no other answer, because it was
// refused or stopped at once, the old one stays.
func (s *session) regen(ctx context.Context) error {
	n := len(s.messages)
	if n == 0 {
		return s.refuse(errors.New("/regen: there is no answer to write again"))
	}
	before := slices.Clone(s.messages)
	s.messages = s.messages[:n-2]
	s.regens++
	err := s.answer(ctx, before[n-2].Content)
	if len(s.messages) < n {
		s.messages = before
	}
	return err
}

// save writes the conversation. A file that is there already is replaced only where it
// is that of this conversation, or where -f says so.
func (s *session) save(rest string) error {
	path, force := strings.CutPrefix(rest, "-f ")
	path = homePath(strings.TrimSpace(path))
	if path == "" {
		return s.refuse(errors.New("/save: no file is named: /save FILE"))
	}
	if !force && userfile.Exists(path) && path != s.file {
		return s.refuse(fmt.Errorf("/save: %s exists; /save -f %s overwrites it", path, path))
	}
	if err := s.write(path); err != nil {
		return s.refuse(fmt.Errorf("/save: %w", err))
	}
	s.file = path
	s.say("The conversation, %s, is in %s.", console.Plural(len(s.messages)/2, "turn"), path)
	return nil
}

// write makes the file of a conversation: a JSON array of messages with role and
// content, as the chat APIs have them.
func (s *session) write(path string) error {
	all := append(openmodel.ConversationSystem(s.system), s.messages...)
	list := make([]savedMessage, len(all))
	for i, m := range all {
		list[i] = savedMessage{Role: m.Role, Content: m.Content}
	}
	f, err := userfile.Create("", path)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(list, "", "  ")
	if err == nil {
		_, err = f.WriteString(console.VisibleJSON(string(b)) + "\n")
	}
	return f.Finish(err)
}

// savedMessage is a message in a file.
type savedMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// load goes on with the conversation of a file; where that is none, with the one that
// is there.
func (s *session) load(rest string) error {
	path := homePath(rest)
	if path == "" {
		return s.refuse(errors.New("/load: no file is named: /load FILE"))
	}
	system, messages, err := readConversation(path)
	if err != nil {
		return s.refuse(fmt.Errorf("/load: %w", err))
	}
	s.system, s.messages, s.file = system, messages, path
	note := ""
	if system != "" {
		note = " and a system prompt"
	}
	s.say("The conversation of %s goes on: %s%s.", path, console.Plural(len(messages)/2, "turn"), note)
	return nil
}

// maxConversation is the bytes of the file of a conversation.
const maxConversation = 64 << 20

// wantConversation is what is expected in such a file.
const wantConversation = `a conversation as /save writes it: [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]`

// readConversation reads a file: at most one system prompt, then messages of the user,
// each with its answer.
func readConversation(path string) (system string, messages []chat.Message, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", nil, fmt.Errorf("%s is no regular file, want %s", path, wantConversation)
	}
	b, err := userfile.ReadLimited(path, maxConversation)
	if err != nil {
		return "", nil, userfile.OpenError("", path, wantConversation, err)
	}
	var list []savedMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return "", nil, fmt.Errorf("%s is no JSON array of messages, want %s", path, wantConversation)
	}
	if len(list) > 0 && list[0].Role == "system" {
		system, list = list[0].Content, list[1:]
	}
	for i, m := range list {
		want := []string{"user", "assistant"}[i%2]
		if m.Role != want {
			return "", nil, fmt.Errorf("%s: message %d has the role %q, want %s: an optional system prompt, then user and assistant in turns", path, i+1, console.Elide(m.Role, maxTold), want)
		}
		messages = append(messages, chat.Message{Role: m.Role, Content: m.Content})
	}
	if len(list)%2 == 1 {
		return "", nil, fmt.Errorf("%s: the last message has no answer", path)
	}
	return system, messages, nil
}
