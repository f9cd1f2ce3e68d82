package chat

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// tagSet parses the tags that a template may use and guards what is in them.
type tagSet struct {
	fence  *fence
	tokens []*tokens.Token // of the template
	rewriter
}

// mentions reports whether a name is among the tokens from one to another.
func (s *tagSet) mentions(name string, from, to *tokens.Token) bool {
	begin := max(slices.Index(s.tokens, from), 0)
	end := max(slices.Index(s.tokens, to), begin)
	return slices.ContainsFunc(s.tokens[begin:end], func(t *tokens.Token) bool { return t.Type == tokens.Name && t.Val == name })
}

// loading are tags that would read another template.
var loading = []string{"include", "import", "from", "extends"}

func (s *tagSet) all() *exec.ControlStructureSet {
	set := map[string]parser.ControlStructureParser{
		"if":         s.parseIf,
		"for":        s.parseFor,
		"set":        s.parseSet,
		"macro":      s.parseMacro,
		"call":       s.parseCall,
		"filter":     s.parseFilter,
		"with":       s.parseWith,
		"generation": s.parseGeneration,
		"break":      original("break"),
		"continue":   original("continue"),
		"raw":        original("raw"),
	}
	for _, name := range loading {
		set[name] = func(*parser.Parser, *parser.Parser) (nodes.ControlStructure, error) {
			return nil, fmt.Errorf("the tag %s reads other templates, which a template in a file may not: put everything into one", name)
		}
	}
	for name, parse := range set {
		set[name] = located(s.fence, parse)
	}
	return exec.NewControlStructureSet(set)
}

// original returns gonja's parser of a tag.
func original(name string) parser.ControlStructureParser {
	p, _ := builtins.ControlStructures.Get(name)
	return p
}

// guard counts each pass through the body of a tag.
func (s *tagSet) guard(w *nodes.Wrapper) {
	if w == nil {
		return
	}
	text := s.nodes(w.Nodes)
	w.Nodes = append([]nodes.Node{s.tick(func() error { return s.fence.step(text) })}, w.Nodes...)
}

func (s *tagSet) parseIf(p, args *parser.Parser) (nodes.ControlStructure, error) {
	tag, err := original("if")(p, args)
	if err != nil {
		return nil, err
	}
	n, ok := tag.(*controls.IfControlStructure)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", tag)
	}
	s.rewriter.all(n.Conditions, 0)
	for _, w := range n.Wrappers {
		s.guard(w)
	}
	return n, s.err
}

func (s *tagSet) parseFor(p, args *parser.Parser) (nodes.ControlStructure, error) {
	tag, err := original("for")(p, args)
	if err != nil {
		return nil, err
	}
	n, ok := tag.(*controls.ForControlStructure)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", tag)
	}
	if n.Recursive {
		return nil, errors.New("a loop may not be recursive")
	}
	n.ObjectEvaluator = call(fnLoop, s.expr(n.ObjectEvaluator))
	if n.IfCondition != nil {
		n.IfCondition = s.expr(n.IfCondition)
	}
	s.guard(n.BodyWrapper)
	s.guard(n.EmptyWrapper)
	return n, s.err
}

// parseMacro makes a macro count how deep it is called. Defaults are evaluated
// before the body, so they may not call anything.
func (s *tagSet) parseMacro(p, args *parser.Parser) (nodes.ControlStructure, error) {
	from := p.Current()
	tag, err := original("macro")(p, args)
	if err != nil {
		return nil, err
	}
	n, ok := tag.(*controls.MacroControlStructure)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", tag)
	}
	if err := s.guardMacro(n.Macro); err != nil {
		return nil, err
	}
	takes := s.mentions(callerName, from, p.Current())
	return &block{at: n.Position(), run: func(r *exec.Renderer) error {
		r.Environment.Context.Set(n.Name, exec.Macro(func(a *exec.VarArgs) *exec.Value {
			if a.KwArgs[callerName] != nil && !takes {
				return s.fence.failf("the template calls the macro %s with a body, and it has no caller()", n.Name)
			}
			return callMacro(n.Macro, r, a)
		}))
		return nil
	}}, s.err
}

// guardMacro makes a macro count how deep it is called.
func (s *tagSet) guardMacro(m *nodes.Macro) error {
	for _, arg := range m.Kwargs {
		switch arg.Value.(type) {
		case *nodes.None, *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool, *nodes.Name:
		default:
			return fmt.Errorf("macro %s: a default value may only be a constant or a name", m.Name)
		}
	}
	s.guard(m.Wrapper)
	enter := s.tick(func() error {
		if s.fence.calls++; s.fence.calls > maxCalls {
			s.fence.failf("the template's macros call each other more than %d deep", maxCalls)
		}
		return s.fence.step(0)
	})
	body := *m.Wrapper
	body.Nodes = append([]nodes.Node{enter}, body.Nodes...)
	// gonja makes one text of an error in a macro and of where it was called.
	m.Wrapper.Nodes = []nodes.Node{s.node(func(r *exec.Renderer) error {
		err := r.ExecuteWrapper(&body)
		s.fence.calls--
		if err != nil {
			s.fence.fail(cause(s.fence, err))
		}
		return err
	})}
	return nil
}

// callMacro runs a macro. What a call tag encloses is caller in it.
func callMacro(m *nodes.Macro, r *exec.Renderer, a *exec.VarArgs) *exec.Value {
	sub := r.Inherit()
	rest := &exec.VarArgs{Args: a.Args, KwArgs: map[string]*exec.Value{}}
	var caller any
	for name, v := range a.KwArgs {
		if name == callerName {
			caller = v.Interface()
			continue
		}
		rest.KwArgs[name] = v
	}
	sub.Environment.Context.Set(callerName, caller)
	f, err := exec.MacroNodeToFunc(m, sub)
	if err != nil {
		return exec.AsValue(err)
	}
	return f(rest)
}

// callerName is what a macro calls the body of a call tag, and bodyName what tags call
// the text that they have captured. No template can write the latter.
const (
	callerName = "caller"
	bodyName   = "\x00body"
)

// parseCall takes {% call macro(arguments) %} and {% call(parameters) macro(arguments) %},
// whose body the macro writes with caller(). The body is a macro itself.
func (s *tagSet) parseCall(p, args *parser.Parser) (nodes.ControlStructure, error) {
	body := &nodes.Macro{Location: p.Current(), Name: callerName}
	if err := parseParameters(args, body); err != nil {
		return nil, err
	}
	expr, err := args.ParseExpression()
	if err != nil {
		return nil, err
	}
	callee, ok := expr.(*nodes.Call)
	if !ok || !args.End() {
		return nil, args.Error("malformed call tag", args.Current())
	}
	if body.Wrapper, err = wrapUntil(p, "endcall"); err != nil {
		return nil, err
	}
	if err := s.guardMacro(body); err != nil {
		return nil, err
	}
	callee.Kwargs[callerName] = &nodes.Name{Name: &tokens.Token{Type: tokens.Name, Val: bodyName}}
	guarded := call(fnPrint, s.expr(callee))
	return &block{at: p.Current(), run: func(r *exec.Renderer) error {
		sub := r.Inherit()
		f := func(a *exec.VarArgs) *exec.Value {
			m, err := exec.MacroNodeToFunc(body, r)
			if err != nil {
				return exec.AsValue(err)
			}
			return m(a)
		}
		sub.Environment.Context.Set(bodyName, f)
		return write(r, sub.Eval(guarded))
	}}, s.err
}

// parseParameters takes the parameters of a call tag, if it has some.
func parseParameters(args *parser.Parser, m *nodes.Macro) error {
	if args.Match(tokens.LeftParenthesis) == nil {
		return nil
	}
	for args.Match(tokens.RightParenthesis) == nil {
		name := args.Match(tokens.Name)
		if name == nil {
			return args.Error("expected the name of a parameter", args.Current())
		}
		param := &nodes.Pair{Key: &nodes.String{Location: name, Val: name.Val}, Value: &nodes.None{Location: name}}
		if args.Match(tokens.Assign) != nil {
			value, err := args.ParseExpression()
			if err != nil {
				return err
			}
			param.Value = value
		}
		m.Kwargs = append(m.Kwargs, param)
		if args.Match(tokens.Comma) == nil && args.Current(tokens.RightParenthesis) == nil {
			return args.Error("expected , or )", args.Current())
		}
	}
	return nil
}

// wrapUntil takes the body of a tag to its end, which has no arguments.
func wrapUntil(p *parser.Parser, end string) (*nodes.Wrapper, error) {
	body, rest, err := p.WrapUntil(end)
	if err != nil {
		return nil, err
	}
	if !rest.End() {
		return nil, rest.Error(end+" takes nothing", rest.Current())
	}
	return body, nil
}

// write writes a value that has been checked.
func write(r *exec.Renderer, v *exec.Value) error {
	if v.IsError() {
		return v
	}
	_, err := io.WriteString(r.Output, v.String())
	return err
}

// capture returns what a body writes.
func capture(r *exec.Renderer, body *nodes.Wrapper) (string, error) {
	var out bytes.Buffer
	sub := r.Inherit()
	sub.Output = &out
	err := sub.ExecuteWrapper(body)
	return out.String(), err
}

// parseFilter takes {% filter name(arguments) | name %}, which filters what its body
// writes.
func (s *tagSet) parseFilter(p, args *parser.Parser) (nodes.ControlStructure, error) {
	filtered := &nodes.FilteredExpression{Expression: &nodes.Name{Name: &tokens.Token{Type: tokens.Name, Val: bodyName}}}
	for {
		f, err := args.ParseFilter()
		if err != nil {
			return nil, err
		}
		filtered.Filters = append(filtered.Filters, f)
		if args.Match(tokens.Pipe) == nil {
			break
		}
	}
	if !args.End() {
		return nil, args.Error("malformed filter tag", args.Current())
	}
	body, err := wrapUntil(p, "endfilter")
	if err != nil {
		return nil, err
	}
	s.guard(body)
	guarded := call(fnPrint, s.expr(filtered))
	return &block{at: p.Current(), run: func(r *exec.Renderer) error {
		text, err := capture(r, body)
		if err != nil {
			return err
		}
		sub := r.Inherit()
		sub.Environment.Context.Set(bodyName, text)
		return write(r, sub.Eval(guarded))
	}}, s.err
}

// parseWith takes {% with name = value, ... %}: the names are there in its body alone, and
// the values do not see them.
func (s *tagSet) parseWith(p, args *parser.Parser) (nodes.ControlStructure, error) {
	var names []string
	var values []nodes.Expression
	for !args.End() {
		name := args.Match(tokens.Name)
		if name == nil || args.Match(tokens.Assign) == nil {
			return nil, args.Error("malformed with tag, want name = value", args.Current())
		}
		value, err := args.ParseExpression()
		if err != nil {
			return nil, err
		}
		names, values = append(names, name.Val), append(values, call(fnCheck, s.expr(value)))
		if args.Match(tokens.Comma) == nil && !args.End() {
			return nil, args.Error("malformed with tag, want a comma", args.Current())
		}
	}
	body, err := wrapUntil(p, "endwith")
	if err != nil {
		return nil, err
	}
	s.guard(body)
	return &block{at: p.Current(), run: func(r *exec.Renderer) error {
		sub := r.Inherit()
		for i, e := range values {
			v := r.Eval(e)
			if v.IsError() {
				return v
			}
			sub.Environment.Context.Set(names[i], v.Interface())
		}
		return sub.ExecuteWrapper(body)
	}}, s.err
}

// parseGeneration takes the tag with which Hugging Face marks the model's own text.
func (s *tagSet) parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	body, _, err := p.WrapUntil("endgeneration")
	if err != nil {
		return nil, err
	}
	s.guard(body)
	return &block{at: p.Current(), run: func(r *exec.Renderer) error { return r.ExecuteWrapper(body) }}, s.err
}

// parseSet takes {% set name = value %}, {% set ns.name = value %}, {% set a, b = values %}
// and the form with a body. Nothing but a namespace can be changed.
func (s *tagSet) parseSet(p, args *parser.Parser) (nodes.ControlStructure, error) {
	assign, err := s.targets(args)
	if err != nil {
		return nil, err
	}
	if args.Match(tokens.Assign) == nil {
		return s.parseSetBody(p, args, assign)
	}
	expr, err := parseTuple(args)
	if err != nil {
		return nil, err
	}
	cond, other, err := args.ParseCondition()
	if err != nil {
		return nil, err
	}
	if !args.End() {
		return nil, args.Error("malformed set tag", args.Current())
	}
	expr, cond, other = s.expr(expr), s.expr(cond), s.expr(other)
	return &block{at: p.Current(), run: func(r *exec.Renderer) error {
		taken := expr
		if cond != nil && !r.Eval(cond).IsTrue() {
			taken = other
		}
		if taken == nil {
			return assign(r, exec.AsValue(nil))
		}
		return assign(r, r.Eval(taken))
	}}, s.err
}

// targets takes what a set tag sets: one target, or names that share a list of values.
func (s *tagSet) targets(args *parser.Parser) (assigner, error) {
	var all []assigner
	for {
		target, err := args.ParseVariableOrLiteral()
		if err != nil {
			return nil, err
		}
		assign, err := s.assignment(target)
		if err != nil {
			return nil, err
		}
		if all = append(all, assign); args.Match(tokens.Comma) == nil {
			break
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return func(r *exec.Renderer, v *exec.Value) error {
		if v = list(s.fence, nil, v, &exec.VarArgs{}); v.IsError() {
			return v
		}
		values := elements(v)
		if len(values) != len(all) {
			return s.fence.failf("the template sets %d names to %d values", len(all), len(values))
		}
		for i, assign := range all {
			if err := assign(r, exec.ToValue(values[i])); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// parseTuple takes an expression, or some with commas between them, which are a tuple.
func parseTuple(args *parser.Parser) (nodes.Expression, error) {
	at := args.Current()
	expr, err := args.ParseExpression()
	if err != nil || args.Current(tokens.Comma) == nil {
		return expr, err
	}
	tuple := &nodes.Tuple{Location: at, Val: []nodes.Expression{expr}}
	for args.Match(tokens.Comma) != nil && !args.End() {
		if expr, err = args.ParseExpression(); err != nil {
			return nil, err
		}
		tuple.Val = append(tuple.Val, expr)
	}
	return tuple, nil
}

func (s *tagSet) parseSetBody(p, args *parser.Parser, assign assigner) (nodes.ControlStructure, error) {
	if !args.End() {
		return nil, args.Error("malformed set tag", args.Current())
	}
	body, _, err := p.WrapUntil("endset")
	if err != nil {
		return nil, err
	}
	s.guard(body)
	return &block{at: p.Current(), run: func(r *exec.Renderer) error {
		text, err := capture(r, body)
		if err != nil {
			return err
		}
		return assign(r, exec.AsValue(text))
	}}, s.err
}

// assigner gives a value to the target of a set tag.
type assigner func(r *exec.Renderer, v *exec.Value) error

func (s *tagSet) assignment(target nodes.Expression) (assigner, error) {
	switch n := target.(type) {
	case *nodes.Name:
		return func(r *exec.Renderer, v *exec.Value) error {
			if v = s.fence.check(v); v.IsError() {
				return v
			}
			r.Environment.Context.Set(n.Name.Val, v.Interface())
			return nil
		}, nil
	case *nodes.GetAttribute:
		if owner, ok := n.Node.(*nodes.Name); ok && n.Attribute != "" {
			return func(r *exec.Renderer, v *exec.Value) error { return s.setAttribute(r, owner, n.Attribute, v) }, nil
		}
	}
	return nil, errors.New("only a name or an attribute of a namespace can be set")
}

func (s *tagSet) setAttribute(r *exec.Renderer, owner *nodes.Name, name string, v *exec.Value) error {
	ns, ok := r.Eval(owner).Interface().(namespace)
	if !ok {
		return s.fence.failf("%s.%s cannot be set: %s is not a namespace", owner.Name.Val, name, owner.Name.Val)
	}
	if v = s.fence.check(v); v.IsError() {
		return v
	}
	if _, ok := v.Interface().(namespace); ok {
		return s.fence.fail(errNamespace)
	}
	ns[name] = v.Interface()
	return nil
}

// block is a tag that runs a function.
type block struct {
	at  *tokens.Token
	run func(*exec.Renderer) error
}

// Position returns where the tag is in the template.
func (b *block) Position() *tokens.Token { return b.at }

// String names the tag in errors.
func (b *block) String() string { return "tag" }

// Execute runs the tag.
func (b *block) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error { return b.run(r) }

// tick makes a node that runs do each time the body around it runs.
func (s *tagSet) tick(do func() error) nodes.Node {
	return s.node(func(*exec.Renderer) error { return do() })
}

// node makes a node that runs a function.
func (s *tagSet) node(run func(*exec.Renderer) error) nodes.Node {
	at := &tokens.Token{Type: tokens.Name, Val: "tick"}
	return &nodes.ControlStructureBlock{Location: at, Name: "tick", ControlStructure: &block{at: at, run: run}}
}
