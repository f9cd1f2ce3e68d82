package openmodel

import (
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/sparse"
)

// AttnHelp tells of the forms of --attn.
const AttnHelp = `  --attn NAME                                 a method with its defaults
  --attn 'NAME(option=value,option=value)'    with options
  --attn NAME:PRESET                          with the settings of a publication
  --attn 'NAME + NAME'                        methods of different stages together
  --attn 'prefill=NAME decode=NAME'           one for prompts, one for new tokens
  --attn @FILE.yaml                           the same, written as YAML:

      prefill:
        - sketchwalk: {density: 0.1}
      decode:
        - cis
        - vattention: {eps: 0.05, delta: 0.05}`

// ReadSpec reads the argument of --attn: the one-line form, or @ and the name of
// a YAML file.
func ReadSpec(text string) (*sparse.Spec, error) {
	path, file := strings.CutPrefix(text, "@")
	if !file {
		return parseSpec(text)
	}
	b, err := userfile.ReadLimited(path, userfile.MaxSpec)
	if err != nil {
		return nil, userfile.OpenError("", path, "a YAML file of attention methods", err)
	}
	line, err := specLine(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s, err := parseSpec(line)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// parseSpec reads the one-line form and wants all that its methods need.
func parseSpec(text string) (*sparse.Spec, error) {
	s, err := sparse.Parse(text)
	if unknown := new(sparse.UnknownError); errors.As(err, &unknown) {
		if near := usage.Nearest(unknown.Name, AttnNames()); near != "" {
			return nil, fmt.Errorf("attention %q: no method is called %q; did you mean %s?", text, unknown.Name, near)
		}
	}
	if err == nil {
		err = s.Missing()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// specLine turns the YAML form of a spec into the one-line form: a list of
// methods for every phase that they know, or a map of such lists by phase. A
// method is its name, with a preset where one is meant, or a map of that name to
// its options.
func specLine(b []byte) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return "", err
	}
	if len(doc.Content) == 0 {
		return "", errors.New("the file is empty; want a list of methods, or prefill and decode with one each")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return stackText(root)
	}
	var phases []string
	seen := map[string]bool{}
	for i := 0; i < len(root.Content); i += 2 {
		name := root.Content[i]
		if name.Value != "prefill" && name.Value != "decode" {
			return "", fmt.Errorf("line %d: %q, want prefill or decode", name.Line, name.Value)
		}
		if seen[name.Value] {
			return "", fmt.Errorf("line %d: %s twice", name.Line, name.Value)
		}
		seen[name.Value] = true
		stack, err := stackText(root.Content[i+1])
		if err != nil {
			return "", err
		}
		phases = append(phases, name.Value+"="+stack)
	}
	return strings.Join(phases, " "), nil
}

// stackText is a list of methods.
func stackText(n *yaml.Node) (string, error) {
	if n.Kind != yaml.SequenceNode {
		n = &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Content: []*yaml.Node{n}}
	}
	if len(n.Content) == 0 {
		return "", fmt.Errorf("line %d: the list of methods is empty; write dense for full attention", n.Line)
	}
	var parts []string
	for _, item := range n.Content {
		text, err := systemText(item)
		if err != nil {
			return "", err
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " + "), nil
}

// systemText is a name, or a name with options.
func systemText(n *yaml.Node) (string, error) {
	if n.Kind == yaml.ScalarNode {
		return word(n)
	}
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 {
		return "", fmt.Errorf("line %d: want the name of a method, or a map of one name to its options", n.Line)
	}
	name, err := word(n.Content[0])
	if err != nil {
		return "", err
	}
	options := n.Content[1]
	if options.Kind == yaml.ScalarNode && options.Tag == "!!null" {
		return name, nil
	}
	if options.Kind != yaml.MappingNode {
		return "", fmt.Errorf("line %d: want a map of options to values", options.Line)
	}
	var settings []string
	for i := 0; i < len(options.Content); i += 2 {
		option, err := word(options.Content[i])
		if err != nil {
			return "", err
		}
		value, err := word(options.Content[i+1])
		if err != nil {
			return "", err
		}
		settings = append(settings, option+"="+value)
	}
	return name + "(" + strings.Join(settings, ",") + ")", nil
}

// word is a scalar as it is written, which must not have what divides words in
// the one-line form.
func word(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("line %d: want one word or number", n.Line)
	}
	if n.Value == "" || strings.ContainsAny(n.Value, " \t\r\n(),=+") {
		return "", fmt.Errorf("line %d: %q, want one word or number", n.Line, n.Value)
	}
	return n.Value, nil
}
