package chat

import (
	"fmt"

	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// Names of the functions that guarded expressions call. No template can write them.
const (
	fnCheck  = "\x00check"  // (value): check of a list, tuple, dictionary or comparison
	fnPrint  = "\x00print"  // (value): check of what is printed
	fnLoop   = "\x00loop"   // (value): check of what is looped over
	fnItem   = "\x00item"   // (value, key): value[key]
	fnAttr   = "\x00attr"   // (value, name): value.name
	fnMethod = "\x00method" // (value, name, arguments...): value.name(arguments...)
	fnFormat = "\x00format" // (text, values...): text % (values...)
	fnOp     = "\x00op"     // followed by the operator: (left, right)
)

// maxNesting bounds expressions inside expressions.
const maxNesting = 150

// rewriter replaces the parts of an expression that could make large values, or
// reach into Go values, by calls of guarded functions. It keeps the first error.
type rewriter struct {
	err error
}

// expr returns the guarded form of e, nil for nil.
func (w *rewriter) expr(e nodes.Expression) nodes.Expression { return w.at(e, 0) }

func (w *rewriter) at(e nodes.Expression, depth int) nodes.Expression {
	if depth > maxNesting {
		w.fail(fmt.Errorf("an expression is nested more than %d deep", maxNesting))
	}
	if w.err != nil {
		return &nodes.None{}
	}
	depth++
	switch n := e.(type) {
	case nil:
		return nil
	case *nodes.None, *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool, *nodes.Name:
		return e
	case *nodes.List:
		w.all(n.Val, depth)
		return call(fnCheck, e)
	case *nodes.Tuple:
		w.all(n.Val, depth)
		return call(fnCheck, e)
	case *nodes.Dict:
		for _, p := range n.Pairs {
			p.Key, p.Value = w.at(p.Key, depth), w.at(p.Value, depth)
		}
		return call(fnCheck, e)
	case *nodes.Negation:
		n.Term = w.at(n.Term, depth)
	case *nodes.UnaryExpression:
		n.Term = w.at(n.Term, depth)
	case *nodes.BinaryExpression:
		return w.binary(n, depth)
	case *nodes.GetItem:
		if n.Arg == nil {
			w.fail(fmt.Errorf("an index is missing between [ and ]"))
			return e
		}
		return call(fnItem, w.at(n.Node, depth), w.at(n.Arg, depth))
	case *nodes.GetAttribute:
		return call(fnAttr, w.at(n.Node, depth), attribute(n))
	case *nodes.GetSlice:
		n.Node, n.Start, n.End, n.Step = w.at(n.Node, depth), w.at(n.Start, depth), w.at(n.End, depth), w.at(n.Step, depth)
		return call(fnCheck, e)
	case *nodes.Call:
		return w.call(n, depth)
	case *nodes.FilteredExpression:
		n.Expression = w.at(n.Expression, depth)
		for _, f := range n.Filters {
			w.all(f.Args, depth)
			w.named(f.Kwargs, depth)
		}
	case *nodes.TestExpression:
		n.Expression = w.at(n.Expression, depth)
		w.all(n.Test.Args, depth)
		w.named(n.Test.Kwargs, depth)
		return call(fnCheck, e)
	default:
		w.fail(fmt.Errorf("an expression of kind %T is not supported", e))
	}
	return e
}

func (w *rewriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *rewriter) all(list []nodes.Expression, depth int) {
	for i, e := range list {
		list[i] = w.at(e, depth)
	}
}

func (w *rewriter) named(list map[string]nodes.Expression, depth int) {
	for name, e := range list {
		list[name] = w.at(e, depth)
	}
}

// binary guards operators that make values and counts comparisons, which may be of
// large values. The others choose one of their sides without looking at the other.
func (w *rewriter) binary(n *nodes.BinaryExpression, depth int) nodes.Expression {
	n.Left = w.at(n.Left, depth)
	if t, ok := n.Right.(*nodes.Tuple); ok && n.Operator.Token.Type == tokens.Modulo {
		w.all(t.Val, depth)
		return call(fnFormat, append([]nodes.Expression{n.Left}, t.Val...)...)
	}
	n.Right = w.at(n.Right, depth)
	if op := n.Operator.Token; operators[op.Type] != nil {
		return call(fnOp+op.Val, n.Left, n.Right)
	}
	if op := n.Operator.Token.Type; op == tokens.And || op == tokens.Or {
		return n
	}
	return call(fnCheck, n)
}

// call guards a call. What looks like a method is one: a value has no functions in
// its attributes.
func (w *rewriter) call(n *nodes.Call, depth int) nodes.Expression {
	w.all(n.Args, depth)
	w.named(n.Kwargs, depth)
	if m, ok := n.Func.(*nodes.GetAttribute); ok {
		c := call(fnMethod, append([]nodes.Expression{w.at(m.Node, depth), attribute(m)}, n.Args...)...)
		c.Kwargs = n.Kwargs
		return c
	}
	n.Func, n.Parent = w.at(n.Func, depth), nil
	return n
}

func attribute(n *nodes.GetAttribute) nodes.Expression {
	if n.Attribute == "" {
		return &nodes.Integer{Location: n.Location, Val: n.Index}
	}
	return &nodes.String{Location: n.Location, Val: n.Attribute}
}

// call makes the call of a guarded function, in the line of its first argument.
func call(name string, args ...nodes.Expression) *nodes.Call {
	at := &tokens.Token{Type: tokens.Name, Val: name}
	if len(args) > 0 && args[0] != nil {
		if first := args[0].Position(); first != nil {
			at.Line, at.Col = first.Line, first.Col
		}
	}
	return &nodes.Call{Location: at, Func: &nodes.Name{Name: at}, Args: args, Kwargs: map[string]nodes.Expression{}}
}

// nodes guards the outputs among the nodes of a template or of a tag's body; tags
// inside were guarded when they were parsed. It returns the bytes of plain text.
func (w *rewriter) nodes(list []nodes.Node) (text int) {
	for _, n := range list {
		switch n := n.(type) {
		case *nodes.Data:
			text += len(n.Data.Val)
		case *nodes.Output:
			n.Expression = call(fnPrint, w.expr(n.Expression))
			if n.Condition != nil {
				n.Condition = w.expr(n.Condition)
			}
			if n.Alternative != nil {
				n.Alternative = call(fnPrint, w.expr(n.Alternative))
			}
		}
	}
	return text
}
