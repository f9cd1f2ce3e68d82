package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gollm/gollm/grammar"
	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/tokenizer/chat"
)

// maxTools is the functions of a request.
const maxTools = 128

// tool is a function that the model may call, as /v1/chat/completions has it.
type tool struct {
	Type     string    `json:"type"`
	Function *function `json:"function"`
}

// UnmarshalJSON refuses unknown fields.
func (t *tool) UnmarshalJSON(b []byte) error {
	type plain tool
	return strict(b, (*plain)(t))
}

// function is a function that the model may call.
type function struct {
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // a schema; none is any object
	Strict      *bool           `json:"strict"`
}

// toolChoice is none, auto, required, or the name of a function.
type toolChoice struct{ mode, name string }

// UnmarshalJSON reads a mode, or a function as either endpoint writes it.
func (c *toolChoice) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &c.mode) == nil {
		return nil
	}
	var named struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function *struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := strict(b, &named); err != nil || named.Type != "function" {
		return unsupported("tool_choice", "tool_choice is none, auto, required, or a function: %s", `{"type": "function", "function": {"name": ...}}`)
	}
	c.mode, c.name = "function", named.Name
	if named.Function != nil {
		c.name = named.Function.Name
	}
	return nil
}

// toolset is the functions that an answer may call; nil is none.
type toolset struct {
	format *chat.CallFormat
	tools  []function // as the template sees them
	may    []function // that the choice leaves
	forced bool       // the answer is a call
	many   bool       // several calls
}

var functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// toolsOf is what a request says of functions.
func (s *Server) toolsOf(all []function, choice *toolChoice, parallel *bool) (*toolset, error) {
	mode := value(choice, toolChoice{mode: "auto"})
	switch {
	case !slices.Contains([]string{"none", "auto", "required", "function"}, mode.mode):
		return nil, invalid("tool_choice", "tool_choice is %.40q, want none, auto, required or a function", mode.mode)
	case len(all) == 0 && mode.mode != "none" && mode.mode != "auto":
		return nil, invalid("tool_choice", "tool_choice without tools")
	case len(all) > maxTools:
		return nil, invalid("tools", "%d tools, want at most %d", len(all), maxTools)
	}
	for i, f := range all {
		if err := f.check(i); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all[:i], func(other function) bool { return other.Name == f.Name }) {
			return nil, invalid("tools", "two tools have the name %s", f.Name)
		}
	}
	if len(all) == 0 || mode.mode == "none" {
		return nil, nil
	}
	format, err := s.callFormat("tools")
	if err != nil {
		return nil, err
	}
	t := &toolset{format: format, tools: all, may: all, forced: mode.mode != "auto", many: value(parallel, true)}
	if mode.mode == "function" {
		i := slices.IndexFunc(all, func(f function) bool { return f.Name == mode.name })
		if i < 0 {
			return nil, invalid("tool_choice", "tool_choice names the function %.80q, which is none of tools", mode.name)
		}
		t.may, t.many = all[i:i+1], false
	}
	return t, nil
}

// callFormat is how the template writes calls; param is the field that needs one.
func (s *Server) callFormat(param string) (*chat.CallFormat, error) {
	if s.conf.Template == nil {
		return nil, s.noTemplate()
	}
	f := s.conf.Template.Calls()
	if f == nil {
		return nil, unsupported(param, "the chat template of %s knows no tools, or writes calls in a format that is not known here (known are those of Llama 3.1, Mistral and Hermes or Qwen); gollm serve --template FILE takes another template", s.conf.Model)
	}
	return f, nil
}

func (f *function) check(i int) error {
	if !functionName.MatchString(f.Name) {
		return invalid("tools", "tool %d has the name %.80q, want 1 to 64 letters, digits, - and _", i, f.Name)
	}
	if p := f.Parameters; len(p) > 0 && string(p) != "null" && p[0] != '{' {
		return invalid("tools", "the parameters of %s are no JSON object", f.Name)
	}
	return nil
}

// schema is the parameters as a schema that stands for itself inside of another.
func (f *function) schema() string {
	var has struct {
		ID *string `json:"$id"`
	}
	text := strings.TrimSpace(string(f.Parameters))
	if text == "" || text == "null" {
		return `{"type":"object"}`
	}
	if json.Unmarshal(f.Parameters, &has) != nil || has.ID != nil {
		return text // what is wrong with it, its grammar says
	}
	rest := strings.TrimSpace(text[1:])
	if rest == "}" {
		return `{"type":"object"}`
	}
	return fmt.Sprintf(`{"$id":%q,%s`, f.Name, rest)
}

// described are the functions as templates know them.
func (t *toolset) described() (list []json.RawMessage) {
	type plain struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	for _, f := range t.tools {
		p := plain{f.Name, value(f.Description, ""), f.Parameters}
		if len(p.Parameters) == 0 || string(p.Parameters) == "null" {
			p.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		b, err := json.Marshal(struct {
			Type     string `json:"type"`
			Function plain  `json:"function"`
		}{"function", p})
		if err != nil {
			panic(err) // the parameters were parsed
		}
		list = append(list, b)
	}
	return list
}

// opening is what a forced call begins with: the end of the prompt.
func (t *toolset) opening() string {
	switch {
	case t == nil || !t.forced:
		return ""
	case t.format.Close != "":
		return t.format.Open + "\n"
	}
	return t.format.Open
}

// show are the control tokens that calls are told by.
func (t *toolset) show(s *Server) (ids []int32) {
	for _, text := range []string{t.format.Open, t.format.Tag, t.format.Close} {
		if id, ok := s.conf.Tokenizer.ID(text); ok && s.conf.Tokenizer.Special(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// apply gives requests what the tools need, and a constraint where there must be a call, where
// one must be as a strict function says, or where there may be no second one.
func (s *Server) apply(ctx context.Context, t *toolset, all []serve.Request) error {
	if t == nil {
		return nil
	}
	for i := range all {
		all[i].Show = t.show(s)
	}
	strict := slices.ContainsFunc(t.may, func(f function) bool { return value(f.Strict, false) })
	if !t.forced && !strict && (t.many || t.format.Open == "") {
		return nil
	}
	c, err := s.schemas.calls(ctx, t)
	if err != nil {
		return err
	}
	for i := range all {
		all[i].Constraint = c.matcher()
	}
	return nil
}

// grammarText is the schema of a call, or of a list of calls.
func (t *toolset) grammarText() string {
	var calls []string
	for _, f := range t.may {
		parameters := `{"type":"object"}`
		if t.forced || value(f.Strict, false) {
			parameters = f.schema()
		}
		calls = append(calls, fmt.Sprintf(`{"type":"object","properties":{"name":{"const":%q},%q:%s},"required":["name",%[2]q],"additionalProperties":false}`, f.Name, t.format.Arguments, parameters))
	}
	one := `{"anyOf":[` + strings.Join(calls, ",") + `]}`
	if !t.format.List {
		return one
	}
	limit := ""
	if !t.many {
		limit = `,"maxItems":1`
	}
	return `{"type":"array","items":` + one + `,"minItems":1` + limit + `}`
}

// schemaPaths is where in the grammar's text the parameters of each function are.
func (t *toolset) schemaPaths() (paths []string) {
	list := ""
	if t.format.List {
		list = "/items"
	}
	for i := range t.may {
		paths = append(paths, fmt.Sprintf("#%s/anyOf/%d/properties/%s", list, i, t.format.Arguments))
	}
	return paths
}

// blame says which function has parameters that no grammar can be made of. All of them are
// compiled as one schema, whose cost is bounded, not each alone.
func (t *toolset) blame(refused *grammar.SchemaError) error {
	for i, path := range t.schemaPaths() {
		if rest, in := strings.CutPrefix(refused.Path, path); in && (rest == "" || rest[0] == '/') {
			return invalid("tools", "the parameters of %s: the schema at #%s: %s", t.may[i].Name, rest, refused.Message)
		}
	}
	return invalid("tools", "the parameters of the functions, together: %s", refused.Message)
}
