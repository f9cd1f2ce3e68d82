package grammar

import (
	"errors"
	"fmt"
	"math"
	"math/big"
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
	root   *value
	nodes  []*node // every one, parents before their children
	of     map[*value]*node
	atoms  int32
	any    *node
	states int // of automata over characters
	work   work
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
		names, _ := c.literals([]string{"true", "false", "null"})
		number, err := compilePattern(anyNumber, false, &c.work)
		if err != nil {
			panic(err) // the pattern is a constant
		}
		c.any.atoms = []*atom{
			c.freeString(0, -1), c.scalar(number), names,
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
func (c *compiler) literals(texts []string) (*atom, error) {
	words := make([]word, len(texts))
	for i, t := range texts {
		words[i] = word{t, 0}
	}
	return c.scalar(trie(words, noLabel)), nil
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
		if known(m.name) || m.name == "$id" && path == "#" || harmless(m) {
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
	at := c.root
	path := "#"
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
		a, err := c.literals(names)
		n.atoms = append(n.atoms, a)
		return err
	}
	return nil
}

// count is the value of a keyword that counts, absent where there is none.
func count(path string, v *value, name string, absent int) (int, error) {
	at := v.member(name)
	if at == nil {
		return absent, nil
	}
	r, err := rational(at)
	if err != nil || !r.IsInt() || r.Sign() < 0 {
		return 0, refuse(path, "%s is a whole number of at least 0", name)
	}
	if !r.Num().IsInt64() || r.Num().Int64() > math.MaxInt32-1 {
		return math.MaxInt32 - 1, nil
	}
	return int(r.Num().Int64()), nil
}

// maxExponent bounds the exponents of the numbers of a schema.
const maxExponent = 400

// rational is the value of a number.
func rational(v *value) (*big.Rat, error) {
	if v.kind != isNumber {
		return nil, fmt.Errorf("%v, want a number", v.kind)
	}
	if i := strings.IndexAny(v.text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(v.text[i+1:]); err != nil || e > maxExponent || e < -maxExponent {
			return nil, errBound
		}
	}
	if len(v.text) > maxExponent {
		return nil, errBound
	}
	r, ok := new(big.Rat).SetString(v.text)
	if !ok {
		return nil, errBound
	}
	return r, nil
}

// str is the atom of the strings that v allows, nil for none.
func (c *compiler) str(path string, v *value) (*atom, error) {
	low, err := count(path, v, "minLength", 0)
	if err != nil {
		return nil, err
	}
	high, err := count(path, v, "maxLength", -1)
	if err != nil {
		return nil, err
	}
	if high >= 0 && low > high {
		return nil, nil
	}
	texts, err := c.patterns(path, v)
	switch {
	case err != nil:
		return nil, err
	case len(texts) == 0:
		return c.freeString(low, high), nil
	case low > 0 || high >= 0:
		if max(low, high) >= maxStates {
			return nil, refuse(path, "beside a pattern or format, minLength and maxLength are honoured below %d", maxStates)
		}
		c.work.spend(max(low, high))
		texts = append(texts, lengths(low, high))
	}
	all := texts[0]
	for _, t := range texts[1:] {
		var ok bool
		if all, ok = both(all, t, &c.work); !ok {
			return nil, refuse(path, "what pattern, format and length allow together needs an automaton of more than %d states: make it simpler", maxStates)
		}
	}
	if all == nil {
		return nil, nil
	}
	if err := c.pay(path, len(all.label)); err != nil {
		return nil, err
	}
	return c.atom(atom{shape: aString, lex: newLexeme(all, true), max: -1}), nil
}

// pay takes states of an automaton off what a schema may have.
func (c *compiler) pay(path string, states int) error {
	if c.states += states; c.states > maxAutomata {
		return refuse(path, "the patterns, names and enumerations of the schema need automata of more than %d states: make them simpler", maxAutomata)
	}
	return nil
}

// patterns is the automata of pattern and format.
func (c *compiler) patterns(path string, v *value) (texts []*chars, err error) {
	if p := v.member("pattern"); p != nil {
		if p.kind != isString {
			return nil, refuse(path, "pattern is a string, not %v", p.kind)
		}
		t, err := compilePattern(p.text, true, &c.work)
		if err != nil {
			return nil, refuse(path, "the pattern %s is not honoured: %v (patterns are RE2's)", quote.Short(p.text), shortError(err))
		}
		texts = append(texts, t)
	}
	if f := v.member("format"); f != nil {
		make, ok := formats[f.text]
		if f.kind != isString || !ok {
			return nil, refuse(path, "the format %s is not honoured: leave it out, or write one of %s", quote.Short(f.text), formatNames())
		}
		texts = append(texts, make())
	}
	return texts, nil
}

// shortError is an error whose text may quote a long pattern.
func shortError(err error) string {
	if errors.Is(err, errTooLarge) {
		return err.Error()
	}
	return quote.Short(err.Error())
}

// number is the atom of the numbers that v allows, nil for none.
func (c *compiler) number(path string, v *value, integer bool) (*atom, error) {
	r := numberRange{integer: integer}
	for _, end := range []struct {
		name string
		to   **bound
		open bool
		more int // the sign of what is the narrower bound
	}{{"minimum", &r.low, false, 1}, {"exclusiveMinimum", &r.low, true, 1}, {"maximum", &r.high, false, -1}, {"exclusiveMaximum", &r.high, true, -1}} {
		at := v.member(end.name)
		if at == nil {
			continue
		}
		b, err := rational(at)
		if err == nil {
			if digits, _ := b.FloatPrec(); digits > maxDigits {
				err = errBound
			}
		}
		if err != nil {
			return nil, refuse(path, "%s is not honoured: %v", end.name, err)
		}
		if old := *end.to; old == nil || b.Cmp(old.value)*end.more >= 0 {
			*end.to = &bound{b, end.open}
		}
	}
	if m := v.member("multipleOf"); m != nil {
		multiple, err := rational(m)
		if err != nil {
			return nil, refuse(path, "multipleOf is not honoured: %v", err)
		}
		r.multiple = multiple
	}
	chars, err := numbers(r, &c.work)
	if err != nil {
		return nil, refuse(path, "the number is not honoured: %v", err)
	}
	if chars == nil {
		return nil, nil
	}
	return c.scalar(chars), c.pay(path, len(chars.label))
}

// properties is the atom of the objects that v allows.
func (c *compiler) properties(path string, v *value) (*atom, error) {
	a := c.atom(atom{shape: anObject})
	var err error
	if a.rest, err = c.restOf(path, v, "additionalProperties"); err != nil {
		return nil, err
	}
	index := map[string]int{}
	if p := v.member("properties"); p != nil {
		if p.kind != isObject {
			return nil, refuse(path, "properties is an object, not %v", p.kind)
		}
		for i, m := range p.members {
			n, err := c.compile(m.value, under(path+"/properties", m.name))
			if err != nil {
				return nil, err
			}
			index[m.name] = i
			a.props = append(a.props, property{name: m.name, node: n})
		}
	}
	if r := v.member("required"); r != nil {
		if err := a.require(path, r, index); err != nil {
			return nil, err
		}
	}
	return a, c.finish(path, a)
}

// require marks the properties that v names. One without a schema of its own has that of the
// other properties.
func (a *atom) require(path string, v *value, index map[string]int) error {
	if v.kind != isArray {
		return refuse(path, "required is an array of names, not %v", v.kind)
	}
	for _, name := range v.items {
		if name.kind != isString {
			return refuse(path, "required is an array of names, but has %v", name.kind)
		}
		i, ok := index[name.text]
		if !ok {
			i = len(a.props)
			index[name.text] = i
			a.props = append(a.props, property{name: name.text, node: a.rest})
		}
		a.props[i].required = true
	}
	return nil
}

// maxNames bounds the bytes of the names that may follow each other in an object, over all its
// properties.
const maxNames = 1 << 20

// finish makes the tables of an object whose properties are known.
func (c *compiler) finish(path string, a *atom) error {
	n := len(a.props)
	a.need, a.keys = make([]int32, n+1), make([]*lexeme, n+1)
	a.need[n] = int32(n)
	total := 0
	for _, p := range a.props {
		if len(p.name) > maxWord {
			return refuse(path, "the name of a property has %d bytes, at most %d are honoured", len(p.name), maxWord)
		}
		total += len(p.name) + 1
	}
	bytes, names := 0, 0
	for i := n - 1; i >= 0; i-- {
		size := len(a.props[i].name) + 1
		a.need[i] = a.need[i+1]
		names += size
		switch {
		case a.props[i].required:
			a.need[i], names = int32(i), size
			bytes += size
		case int(a.need[i]) == n && a.rest != nil:
			bytes += total // every name is told from the others
		default:
			bytes += names
		}
	}
	if bytes > maxNames {
		return refuse(path, "too many properties may be left out, each of which may follow each one before: name them in required")
	}
	return c.pay(path, bytes)
}

// maxWord bounds the bytes of a name or of a string of an enumeration.
const maxWord = 1 << 14

// restOf is the schema of what a keyword says of all others, nil for none.
func (c *compiler) restOf(path string, v *value, name string) (*node, error) {
	at := v.member(name)
	switch {
	case at == nil:
		return c.anything(), nil
	case at.kind == isArray:
		return nil, refuse(path, "%s is a schema, not an array: write prefixItems for the schemas of the first items", name)
	}
	return c.compile(at, path+"/"+name)
}

// array is the atom of the arrays that v allows.
func (c *compiler) array(path string, v *value) (*atom, error) {
	a := c.atom(atom{shape: anArray})
	var err error
	if a.rest, err = c.restOf(path, v, "items"); err != nil {
		return nil, err
	}
	if p := v.member("prefixItems"); p != nil {
		if p.kind != isArray {
			return nil, refuse(path, "prefixItems is an array of schemas, not %v", p.kind)
		}
		for i, item := range p.items {
			n, err := c.compile(item, fmt.Sprintf("%s/prefixItems/%d", path, i))
			if err != nil {
				return nil, err
			}
			a.prefix = append(a.prefix, n)
		}
	}
	if a.min, err = count(path, v, "minItems", 0); err != nil {
		return nil, err
	}
	a.max, err = count(path, v, "maxItems", -1)
	return a, err
}
