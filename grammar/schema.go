package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gollm/gollm/internal/quote"
)

// Keywords that say nothing about which values are valid.
var annotations = []string{"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$defs", "definitions"}

// assertions are the keywords that compile honours, by the type they speak of.
var assertions = map[string][]string{
	"":       {"type", "enum", "const", "$ref", "anyOf", "allOf"},
	"string": {"minLength", "maxLength", "pattern", "format"},
	"number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	"object": {"properties", "required", "additionalProperties"},
	"array":  {"prefixItems", "items", "minItems", "maxItems"},
}

// instead says what to write for keywords that are known and not honoured.
var instead = map[string]string{
	"oneOf":             "write anyOf, if the alternatives exclude each other",
	"nullable":          `write "type": ["string", "null"]`,
	"additionalItems":   "write items beside prefixItems",
	"patternProperties": "write properties, or additionalProperties with a schema",
	"minProperties":     "name the properties in required",
	"$dynamicRef":       "write $ref",
	"$recursiveRef":     "write $ref",
	"$anchor":           "refer to the schema by its path, as in #/$defs/name",
}

// typeNames are the values of the keyword type.
var typeNames = []string{"null", "boolean", "object", "array", "number", "string", "integer"}

// compiler makes nodes of a schema.
type compiler struct {
	resource
	nodes  []*node // every one, parents before their children
	of     map[*value]*node
	atoms  int32
	any    *node
	states int // of automata over characters
	work   work

	lexemes   map[string]*lexeme // of numbers, and of strings with a pattern or format, nil for those with no text
	patterned int                // of them, strings
}

// resource is a schema that $ref refers to parts of: the whole one, or the innermost with $id.
type resource struct {
	root *value
	at   string // its path
}

// maxAutomata bounds the states of all automata of a schema together.
const maxAutomata = 1 << 20

// compile is the node of the schema v at a path.
func (c *compiler) compile(v *value, path string) (*node, error) {
	if n := c.of[v]; n != nil {
		return n, nil
	}
	n := c.node(path)
	c.of[v] = n
	defer func(outer resource) { c.resource = outer }(c.resource)
	c.enter(v, path)
	switch v.kind {
	case isTrue:
		n.alts = []*node{c.anything()}
		return n, nil
	case isFalse:
		return n, nil
	case isObject:
		return n, c.object(n, v)
	}
	return nil, refuse(path, "a schema is an object, true or false, not %v", v.kind)
}

// enter makes v the resource of what is inside where it has $id.
func (c *compiler) enter(v *value, path string) {
	if v.member("$id") != nil {
		c.resource = resource{v, path}
	}
}

func (c *compiler) node(path string) *node {
	n := &node{path: path}
	c.nodes = append(c.nodes, n)
	return n
}

func (c *compiler) atom(a atom) *atom {
	a.id = c.atoms
	c.atoms++
	return &a
}

// anything is the node of every value.
func (c *compiler) anything() *node {
	if c.any == nil {
		c.any = c.node("#")
		number, err := compilePattern(anyNumber, false, &c.work)
		if err != nil {
			panic(err) // the pattern is a constant
		}
		c.any.atoms = []*atom{
			c.freeString(0, -1), c.scalar(number), c.literals([]string{"true", "false", "null"}),
			c.atom(atom{shape: anObject, rest: c.any, need: []int32{0}, keys: make([]*lexeme, 1)}),
			c.atom(atom{shape: anArray, rest: c.any, max: -1}),
		}
	}
	return c.any
}

func (c *compiler) freeString(min, max int) *atom {
	return c.atom(atom{shape: aString, lex: freeText(), min: min, max: max})
}

func (c *compiler) scalar(chars *chars) *atom {
	return c.atom(atom{shape: aScalar, lex: newLexeme(chars, false), max: -1})
}

// literals is the atom of scalars that are written as they are.
func (c *compiler) literals(texts []string) *atom {
	words := make([]word, len(texts))
	for i, t := range texts {
		words[i] = word{t, 0}
	}
	return c.scalar(trie(words, noLabel))
}

// object makes n of the keywords of v.
func (c *compiler) object(n *node, v *value) error {
	if err := checkKeywords(n.path, v); err != nil {
		return err
	}
	for _, whole := range []struct {
		name    string
		combine func(*node, *value) error
	}{{"$ref", c.ref}, {"anyOf", c.anyOf}, {"allOf", c.allOf}} {
		if at := v.member(whole.name); at != nil {
			if err := alone(n.path, v, whole.name); err != nil {
				return err
			}
			return whole.combine(n, at)
		}
	}
	if v.member("enum") != nil || v.member("const") != nil {
		return c.enum(n, v)
	}
	types, err := typesOf(n.path, v)
	if err != nil {
		return err
	}
	return c.types(n, v, types)
}

// checkKeywords refuses the keywords that are not honoured.
func checkKeywords(path string, v *value) error {
	for _, m := range v.members {
		if known(m.name) || m.name == "$id" || harmless(m) {
			continue
		}
		how := instead[m.name]
		if how == "" {
			how = "leave it out; docs/structured-output.md lists those that are"
		}
		return refuse(path, "the keyword %s is not honoured: %s", quote.Short(m.name), how)
	}
	return nil
}

func known(name string) bool {
	for _, names := range assertions {
		if slices.Contains(names, name) {
			return true
		}
	}
	return slices.Contains(annotations, name)
}

// harmless reports whether a keyword that is not honoured has a value with which it says nothing.
func harmless(m member) bool {
	switch m.name {
	case "uniqueItems":
		return m.value.kind == isFalse
	case "minProperties", "minContains":
		return m.value.kind == isNumber && m.value.text == "0"
	}
	return false
}

// alone refuses assertions beside one that stands for a whole schema.
func alone(path string, v *value, name string) error {
	for _, m := range v.members {
		if m.name != name && !slices.Contains(annotations, m.name) && m.name != "$id" {
			return refuse(path, "%s beside %s is not honoured: write it into what %[2]s names", quote.Short(m.name), name)
		}
	}
	return nil
}

// ref makes n the schema that a JSON pointer names.
func (c *compiler) ref(n *node, v *value) error {
	if v.kind != isString {
		return refuse(n.path, "$ref is a string, not %v", v.kind)
	}
	rest, local := strings.CutPrefix(v.text, "#")
	if !local || rest != "" && rest[0] != '/' {
		return refuse(n.path, "$ref %s is not honoured: refer to a part of this schema by its path, as in #/$defs/name", quote.Short(v.text))
	}
	defer func(outer resource) { c.resource = outer }(c.resource)
	at, path := c.root, c.at
	for part := range strings.SplitSeq(strings.TrimPrefix(rest, "/"), "/") {
		if rest == "" {
			break
		}
		name := pointerUnescape.Replace(part)
		path = under(path, name)
		switch {
		case at.kind == isArray:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at.items) {
				return refuse(n.path, "$ref %s names nothing in this schema", quote.Short(v.text))
			}
			at = at.items[i]
		default:
			if at = at.member(name); at == nil {
				return refuse(n.path, "$ref %s names nothing in this schema", quote.Short(v.text))
			}
		}
		c.enter(at, path)
	}
	to, err := c.compile(at, path)
	n.alts = []*node{to}
	return err
}

func (c *compiler) anyOf(n *node, v *value) error {
	if v.kind != isArray || len(v.items) == 0 {
		return refuse(n.path, "anyOf is an array of at least one schema")
	}
	for i, item := range v.items {
		alt, err := c.compile(item, fmt.Sprintf("%s/anyOf/%d", n.path, i))
		if err != nil {
			return err
		}
		n.alts = append(n.alts, alt)
	}
	return nil
}

func (c *compiler) allOf(n *node, v *value) error {
	if v.kind != isArray || len(v.items) != 1 {
		return refuse(n.path, "allOf is honoured with one schema: write what several of them say into one")
	}
	alt, err := c.compile(v.items[0], n.path+"/allOf/0")
	n.alts = []*node{alt}
	return err
}

// typesOf is the types that v allows: without the keyword, all.
func typesOf(path string, v *value) ([]string, error) {
	t := v.member("type")
	if t == nil {
		return typeNames[:len(typeNames)-1], nil
	}
	names := t.items
	switch {
	case t.kind == isString:
		names = []*value{t}
	case t.kind != isArray || len(names) == 0:
		return nil, refuse(path, "type is a string, or an array of them")
	}
	var types []string
	for _, name := range names {
		if name.kind != isString || !slices.Contains(typeNames, name.text) {
			return nil, refuse(path, "the type %s is unknown; the types are %s", quote.Short(string(name.append(nil))), strings.Join(typeNames, ", "))
		}
		if !slices.Contains(types, name.text) {
			types = append(types, name.text)
		}
	}
	return types, nil
}

// types adds to n the atoms of the types, each with the keywords that speak of it.
func (c *compiler) types(n *node, v *value, types []string) error {
	var names []string
	for _, t := range types {
		var a *atom
		var err error
		switch t {
		case "null":
			names = append(names, "null")
		case "boolean":
			names = append(names, "true", "false")
		case "string":
			a, err = c.str(n.path, v)
		case "number", "integer":
			if t == "number" || !slices.Contains(types, "number") {
				a, err = c.number(n.path, v, t == "integer")
			}
		case "object":
			a, err = c.properties(n.path, v)
		case "array":
			a, err = c.array(n.path, v)
		}
		if err != nil {
			return err
		}
		if a != nil {
			n.atoms = append(n.atoms, a)
		}
	}
	if len(names) > 0 {
		n.atoms = append(n.atoms, c.literals(names))
	}
	return nil
}
