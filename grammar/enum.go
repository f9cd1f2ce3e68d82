package grammar

import (
	"fmt"
	"slices"
)

// enum makes n of the values of enum and const that the type beside them allows.
func (c *compiler) enum(n *node, v *value) error {
	if err := onlyType(n.path, v); err != nil {
		return err
	}
	values, err := listed(n.path, v)
	if err != nil {
		return err
	}
	types, err := typesOf(n.path, v)
	if err != nil {
		return err
	}
	var texts []word
	var scalars []string
	for i, item := range values {
		if !slices.ContainsFunc(types, item.is) {
			continue
		}
		switch item.kind {
		case isString:
			texts = append(texts, word{item.text, 0})
		case isArray, isObject:
			a, err := c.exactly(item, fmt.Sprintf("%s/enum/%d", n.path, i))
			if err != nil {
				return err
			}
			n.atoms = append(n.atoms, a)
		default:
			scalars = append(scalars, string(item.append(nil)))
		}
	}
	return c.words(n, texts, scalars)
}

// words adds to n the strings and scalars of an enumeration.
func (c *compiler) words(n *node, texts []word, scalars []string) error {
	size := 0
	for _, t := range texts {
		if len(t.text) > maxWord {
			return refuse(n.path, "a string of the enumeration has %d bytes, at most %d are honoured", len(t.text), maxWord)
		}
		size += len(t.text) + 1
	}
	if len(texts) > 0 {
		n.atoms = append(n.atoms, c.atom(atom{shape: aString, lex: newLexeme(trie(texts, noLabel), true), max: -1}))
	}
	if len(scalars) > 0 {
		n.atoms = append(n.atoms, c.literals(scalars))
	}
	return c.pay(n.path, size)
}

// onlyType refuses what cannot be beside an enumeration.
func onlyType(path string, v *value) error {
	for _, m := range v.members {
		if !slices.Contains(annotations, m.name) && !slices.Contains([]string{"type", "enum", "const", "$id"}, m.name) {
			return refuse(path, "%s beside enum or const is not honoured: leave out the values that it forbids", m.name)
		}
	}
	return nil
}

// listed is the values of enum, of const, or of both where there are both.
func listed(path string, v *value) ([]*value, error) {
	enum, only := v.member("enum"), v.member("const")
	if enum == nil {
		return []*value{only}, nil
	}
	if enum.kind != isArray || len(enum.items) == 0 {
		return nil, refuse(path, "enum is an array of at least one value")
	}
	if only == nil {
		return enum.items, nil
	}
	if slices.ContainsFunc(enum.items, only.equal) {
		return []*value{only}, nil
	}
	return nil, nil
}

// is reports whether v is of a type.
func (v *value) is(name string) bool {
	switch name {
	case "boolean":
		return v.kind == isTrue || v.kind == isFalse
	case "integer":
		r, err := rational(v)
		return err == nil && r.IsInt()
	case "null":
		return v.kind == isNull
	}
	return v.kind == map[string]kind{"number": isNumber, "string": isString, "array": isArray, "object": isObject}[name]
}

// exactly is the atom of one array or object.
func (c *compiler) exactly(v *value, path string) (*atom, error) {
	a := c.atom(atom{shape: anArray, min: len(v.items), max: len(v.items)})
	for _, item := range v.items {
		n, err := c.constant(item, path)
		if err != nil {
			return nil, err
		}
		a.prefix = append(a.prefix, n)
	}
	if v.kind == isArray {
		return a, nil
	}
	a.shape, a.min, a.max = anObject, 0, 0
	for _, m := range v.members {
		n, err := c.constant(m.value, path)
		if err != nil {
			return nil, err
		}
		a.props = append(a.props, property{name: m.name, node: n, required: true})
	}
	return a, c.finish(path, a)
}

// constant is the node of one value.
func (c *compiler) constant(v *value, path string) (*node, error) {
	n := c.node(path)
	if v.kind == isArray || v.kind == isObject {
		a, err := c.exactly(v, path)
		n.atoms = []*atom{a}
		return n, err
	}
	if v.kind == isString {
		return n, c.words(n, []word{{v.text, 0}}, nil)
	}
	return n, c.words(n, nil, []string{string(v.append(nil))})
}
