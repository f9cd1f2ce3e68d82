package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// maxTagTokens bounds a tag, and with it the recursion of the parser.
const maxTagTokens = 2000

// rootName is the one template that exists.
const rootName = "chat"

// onlyRoot is a loader that refuses everything but the template itself, whose text is
// parsed before.
type onlyRoot struct{}

var errLoads = errors.New("a template may not load other templates")

// Read returns no text for the template.
func (l onlyRoot) Read(path string) (io.Reader, error) {
	if path != rootName {
		return nil, errLoads
	}
	return strings.NewReader(""), nil
}

// Resolve accepts the name of the template.
func (l onlyRoot) Resolve(path string) (string, error) {
	if path != rootName {
		return "", errLoads
	}
	return path, nil
}

// Inherit refuses: no template is relative to another.
func (l onlyRoot) Inherit(string) (loaders.Loader, error) { return nil, errLoads }

// jinjaConfig is Jinja as Hugging Face sets it up.
func jinjaConfig() *config.Config {
	c := config.New()
	c.TrimBlocks = true
	c.LeftStripBlocks = true
	return c
}

// checkJinja reports why a template cannot be parsed.
func checkJinja(source string) error {
	_, err := parseJinja(newFence(context.Background(), len(source), maxTime), source, Conversation{})
	if err != nil {
		return fmt.Errorf("chat: template: %w", err)
	}
	return nil
}

// parseJinja parses a template for one rendering, within one fence.
func parseJinja(f *fence, source string, c Conversation) (t *exec.Template, err error) {
	defer catch(f, &err)
	all, err := lex(source)
	if err != nil {
		return nil, err
	}
	tags := &tagSet{fence: f, tokens: all}
	env := &exec.Environment{
		Filters:           filterSet(f),
		Tests:             testSet(),
		ControlStructures: tags.all(),
		Context:           exec.NewContext(globals(f, c.Date)),
		Methods:           noMethods(),
	}
	root, err := parser.NewParser(rootName, tokens.NewStream(all), jinjaConfig(), onlyRoot{}, env.ControlStructures).Parse()
	if err != nil {
		return nil, cause(f, err)
	}
	// A template without a text, into which goes what was parsed of the tokens.
	if t, err = exec.NewTemplate(rootName, jinjaConfig(), onlyRoot{}, env); err != nil {
		return nil, cause(f, err)
	}
	*t.Root() = *root
	tags.nodes(t.Root().Nodes)
	return t, tags.err
}

// noMethods replaces gonja's own methods: those of this package are called through
// fnMethod.
func noMethods() exec.Methods {
	return exec.Methods{
		Bool:  exec.NewMethodSet(map[string]exec.Method[bool]{}),
		Str:   exec.NewMethodSet(map[string]exec.Method[string]{}),
		Int:   exec.NewMethodSet(map[string]exec.Method[int]{}),
		Float: exec.NewMethodSet(map[string]exec.Method[float64]{}),
		Dict:  exec.NewMethodSet(map[string]exec.Method[map[string]any]{}),
		List:  exec.NewMethodSet(map[string]exec.Method[[]any]{}),
	}
}

// renderJinja renders a template that checkJinja accepted.
func (t *Template) renderJinja(ctx context.Context, c Conversation) (text string, err error) {
	input := len(t.source) + len(c.BOS) + len(c.EOS)
	for _, m := range c.Messages {
		input += len(m.Role) + len(m.Content) + len(m.CallID) + 64
		for _, call := range m.Calls {
			input += len(call.ID) + len(call.Name) + 8*len(call.Arguments) + 64
		}
	}
	for _, tool := range c.Tools {
		input += 8 * len(tool)
	}
	f := newFence(ctx, input, t.limit)
	data, err := values(c)
	if err != nil {
		return "", err
	}
	parsed, err := parseJinja(f, t.source, c)
	if err == nil {
		text, err = execute(f, parsed, data)
	}
	if err != nil {
		return "", fmt.Errorf("chat: template: %w", err)
	}
	return text, nil
}

func execute(f *fence, t *exec.Template, data map[string]any) (text string, err error) {
	defer catch(f, &err)
	var out strings.Builder
	if err := t.Execute(&out, exec.NewContext(data)); err != nil {
		return "", cause(f, err)
	}
	if f.err != nil {
		return "", f.err
	}
	return out.String(), nil
}

// values returns what the template sees of a conversation, as new values.
func values(c Conversation) (map[string]any, error) {
	messages := []any{}
	for i, m := range c.Messages {
		d := dict("role", m.Role, "content", m.Content)
		if len(m.Calls) > 0 {
			calls, err := callValues(c, m.Calls)
			if err != nil {
				return nil, fmt.Errorf("chat: message %d: %w", i, err)
			}
			d.Pairs = append(d.Pairs, dict("tool_calls", calls).Pairs...)
		}
		if m.CallID != "" {
			d.Pairs = append(d.Pairs, dict("tool_call_id", m.CallID).Pairs...)
		}
		messages = append(messages, d)
	}
	data := map[string]any{
		"messages":              messages,
		"add_generation_prompt": c.AddGenerationPrompt,
		"bos_token":             c.BOS,
		"eos_token":             c.EOS,
	}
	if len(c.Tools) == 0 {
		return data, nil
	}
	tools := []any{}
	for i, tool := range c.Tools {
		v, err := fromJSON(tool, c.Quote)
		if err != nil {
			return nil, fmt.Errorf("chat: tool %d: %w", i, err)
		}
		tools = append(tools, v.Interface())
	}
	data["tools"] = tools
	return data, nil
}

// dict is a value of names and values by turns.
func dict(pairs ...any) *exec.Dict {
	d := exec.NewDict()
	for i := 0; i < len(pairs); i += 2 {
		d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(pairs[i]), Value: exec.AsValue(pairs[i+1])})
	}
	return d
}

// callValues are calls as Hugging Face's templates know them.
func callValues(c Conversation, calls []Call) (list []any, err error) {
	for _, call := range calls {
		args, err := fromJSON(call.Arguments, c.Quote)
		if err != nil {
			return nil, fmt.Errorf("the arguments of the call of %q are not JSON: %w", shorten(call.Name), err)
		}
		d := dict("type", "function", "function", dict("name", call.Name, "arguments", args.Interface()))
		if call.ID != "" {
			d.Pairs = append(d.Pairs, dict("id", call.ID).Pairs...)
		}
		list = append(list, d)
	}
	return list, nil
}

// cause returns what the fence stopped, else the innermost of gonja's errors.
func cause(f *fence, err error) error {
	if f.err != nil {
		return f.err
	}
	for {
		var inner error
		switch e := err.(type) {
		case *parser.SyntaxError:
			text := strings.TrimSuffix(shorten(e.Message), ".")
			if e.Line == 0 {
				return errors.New(text)
			}
			if e.Raw != "" {
				text = fmt.Sprintf("%s, near %.40q", text, e.Raw)
			}
			return lineError{e.Line, text}
		case lineError:
			return e
		case interface{ Unwrap() error }:
			inner = e.Unwrap()
		case interface{ Cause() error }:
			inner = e.Cause()
		case *exec.Value:
			inner, _ = e.Interface().(error)
		}
		if inner == nil {
			return errors.New(shorten(err.Error()))
		}
		err = inner
	}
}

// catch turns a panic of gonja into an error.
func catch(f *fence, err *error) {
	switch r := recover(); {
	case r == nil:
	case f.err != nil:
		*err = f.err
	default:
		*err = fmt.Errorf("it cannot be evaluated: %s", shorten(fmt.Sprint(r)))
	}
}

// shorten keeps an error readable.
func shorten(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	for n := most; ; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n] + "…"
		}
	}
}
