package chat

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// tagSet parses the tags that a template may use and guards what is in them.
type tagSet struct {
	fence *fence
	rewriter
}

// loading are tags that would read another template.
var loading = []string{"include", "import", "from", "extends"}

func (s *tagSet) all() *exec.ControlStructureSet {
	set := map[string]parser.ControlStructureParser{
		"if":         s.parseIf,
		"for":        s.parseFor,
		"set":        s.parseSet,
		"macro":      s.parseMacro,
		"generation": s.parseGeneration,
		"break":      original("break"),
		"continue":   original("continue"),
		"raw":        original("raw"),
	}
	for _, name := range loading {
		set[name] = func(*parser.Parser, *parser.Parser) (nodes.ControlStructure, error) {
			return nil, fmt.Errorf("a template may not %s other templates", name)
		}
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
	tag, err := original("macro")(p, args)
	if err != nil {
		return nil, err
	}
	n, ok := tag.(*controls.MacroControlStructure)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", tag)
	}
	for _, arg := range n.Kwargs {
		switch arg.Value.(type) {
		case *nodes.None, *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool, *nodes.Name:
		default:
			return nil, fmt.Errorf("macro %s: a default value may only be a constant or a name", n.Name)
		}
	}
	s.guard(n.Wrapper)
	enter := s.tick(func() error {
		if s.fence.calls++; s.fence.calls > maxCalls {
			s.fence.failf("the template's macros call each other more than %d deep", maxCalls)
		}
		return s.fence.step(0)
	})
	leave := s.tick(func() error { s.fence.calls--; return nil })
	n.Wrapper.Nodes = append(append([]nodes.Node{enter}, n.Wrapper.Nodes...), leave)
	return n, s.err
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

// parseSet takes {% set name = value %}, {% set ns.name = value %} and the form
// with a body. Nothing but a namespace can be changed.
func (s *tagSet) parseSet(p, args *parser.Parser) (nodes.ControlStructure, error) {
	target, err := args.ParseVariableOrLiteral()
	if err != nil {
		return nil, err
	}
	assign, err := s.assignment(target)
	if err != nil {
		return nil, err
	}
	if args.Match(tokens.Assign) == nil {
		return s.parseSetBody(p, args, assign)
	}
	expr, err := args.ParseExpression()
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
		chosen := expr
		if cond != nil && !r.Eval(cond).IsTrue() {
			chosen = other
		}
		if chosen == nil {
			return assign(r, exec.AsValue(nil))
		}
		return assign(r, r.Eval(chosen))
	}}, s.err
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
		var out bytes.Buffer
		sub := r.Inherit()
		sub.Output = &out
		if err := sub.ExecuteWrapper(body); err != nil {
			return err
		}
		return assign(r, exec.AsValue(out.String()))
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
	at := &tokens.Token{Type: tokens.Name, Val: "tick"}
	return &nodes.ControlStructureBlock{Location: at, Name: "tick", ControlStructure: &block{at: at, run: func(*exec.Renderer) error { return do() }}}
}
