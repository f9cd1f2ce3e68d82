package published

import (
	"fmt"
	"strings"
)

// pyDict reads a dictionary of texts out of Python source, as the official repositories have
// their prompts: NAME = { "key": "text" "text" + "text", ... }, where a value may also be several texts
// in parentheses with commas. Values are given text by text.
func pyDict(source, name string) (map[string][]string, error) {
	_, body, ok := strings.Cut("\n"+source, "\n"+name+" = {")
	if !ok {
		return nil, fmt.Errorf("no dictionary %s", name)
	}
	p := pyReader{rest: body}
	all := map[string][]string{}
	for {
		if p.take("}") {
			return all, nil
		}
		key, err := p.text()
		if err == nil && !p.take(":") {
			err = fmt.Errorf("no colon behind %q", key)
		}
		if err == nil {
			all[key], err = p.value()
		}
		if err != nil {
			return nil, fmt.Errorf("dictionary %s: %w", name, err)
		}
		p.take(",")
	}
}

// pyReader reads Python source from its beginning.
type pyReader struct{ rest string }

// take passes over white space, comments and a mark; false where the mark is not there.
func (p *pyReader) take(mark string) bool {
	for {
		p.rest = strings.TrimLeft(p.rest, " \t\r\n")
		if !strings.HasPrefix(p.rest, "#") {
			break
		}
		_, p.rest, _ = strings.Cut(p.rest, "\n")
	}
	rest, ok := strings.CutPrefix(p.rest, mark)
	if ok {
		p.rest = rest
	}
	return ok
}

// value reads a text, a sum of texts, or several in parentheses.
func (p *pyReader) value() ([]string, error) {
	if !p.take("(") {
		text, err := p.sum()
		return []string{text}, err
	}
	var all []string
	for !p.take(")") {
		text, err := p.sum()
		if err != nil {
			return nil, err
		}
		all = append(all, text)
		p.take(",")
	}
	return all, nil
}

// sum reads texts that are joined.
func (p *pyReader) sum() (string, error) {
	text, err := p.text()
	for err == nil && p.take("+") {
		var more string
		more, err = p.text()
		text += more
	}
	return text, err
}

// text reads a text in single or double quotes on one line.
func (p *pyReader) text() (string, error) {
	p.take("")
	if p.rest == "" || p.rest[0] != '"' && p.rest[0] != '\'' {
		return "", fmt.Errorf("want a text in quotes, found %.20q", p.rest)
	}
	quote := p.rest[0]
	for i := 1; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case '\n':
			return "", fmt.Errorf("a text in quotes does not end on its line: %.20q", p.rest)
		case quote:
			text := pyEscapes.Replace(p.rest[1:i])
			p.rest = p.rest[i+1:]
			return text, nil
		}
	}
	return "", fmt.Errorf("a text in quotes does not end: %.20q", p.rest)
}

// pyEscapes are the escapes that the official texts use.
var pyEscapes = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\'`, "'", `\\`, `\`)
