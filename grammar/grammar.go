package grammar

import (
	"slices"
	"sync"
)

// Options say how JSON is written.
type Options struct {
	// Compact leaves no room for white space. Without it one space or newline may stand behind
	// an opening bracket, a comma and a colon, and before a closing bracket.
	Compact bool
	// Needs are the paths of schemas inside the schema that must have a value, though the whole one
	// has values without them: alternatives of anyOf that somebody wants to be possible.
	Needs []string
}

// Grammar is a compiled schema. Make it with [Compile]. It may be used from several goroutines.
type Grammar struct {
	mu    sync.Mutex // held while lexemes grow
	root  *node
	space bool // white space is allowed
}

// Object is the grammar of any JSON object.
func Object(o Options) *Grammar {
	g, err := Compile([]byte(`{"type": "object"}`), o)
	if err != nil {
		panic(err) // the schema is a constant
	}
	return g
}

// Compile makes the grammar of the JSON values that a schema allows. Properties are written in
// the order of the schema, others behind them. The error is a *SchemaError.
func Compile(schema []byte, o Options) (*Grammar, error) {
	v, err := parse(schema)
	if err != nil {
		return nil, err
	}
	c := &compiler{resource: resource{v, "#"}, of: map[*value]*node{}, work: maxWork, lexemes: map[string]*lexeme{}}
	root, err := c.compile(v, "#")
	if err != nil {
		return nil, err
	}
	budget := maxAtoms
	for _, n := range c.nodes {
		if err := n.flatten(&budget); err != nil {
			return nil, err
		}
	}
	if err := checkAlike(c.nodes); err != nil {
		return nil, err
	}
	prune(c.nodes)
	for _, n := range c.nodes {
		if !n.live && (n == root || slices.Contains(o.Needs, n.path)) {
			return nil, refuse(n.path, "no value can match the schema")
		}
	}
	return &Grammar{root: root, space: !o.Compact}, nil
}
