package sparse

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Spec is a composition of methods: which ones, with which options, in which phase.
type Spec struct{ items []item }

// item is one method of a spec, or a combination of several.
type item struct {
	entry           *Entry
	opts            any // of the entry's option type
	prefill, decode bool
	of              string // the combination that it is a part of; may be empty
	scorer          *item  // the method of the select stage that its options name; may be nil
}

// name is the method's name, and the combination that it is a part of.
func (it item) name() string {
	if it.of != "" {
		return it.entry.Name + " (of " + it.of + ")"
	}
	return it.entry.Name
}

// UnknownError is a name that no method has.
type UnknownError struct{ Name string }

// Error lists the names of the methods.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("no method is called %q; there are: %s", e.Name, strings.Join(names(""), ", "))
}

// Parse reads the text form of a spec, the argument of --attn:
//
//	spec    = methods | [ "prefill=" methods ] [ "decode=" methods ]
//	methods = method { "+" method }
//	method  = name [ ":" preset ] [ "(" option "=" value { "," option "=" value } ")" ]
//
// Methods without a phase are used in every phase that they support. An
// unknown name, option, value or combination is one error that lists what
// would be valid.
func Parse(text string) (*Spec, error) {
	s := &Spec{}
	for _, ph := range phases(text) {
		if err := s.addMethods(ph); err != nil {
			return nil, fmt.Errorf("sparse: attention %q: %w", text, err)
		}
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("sparse: attention %q: %w", text, err)
	}
	return s, nil
}

// phase is the text of the methods of a phase: "prefill", "decode", or "" for both.
type phase struct{ name, methods string }

// phases cuts a spec at its phase names.
func phases(text string) []phase {
	var list []phase
	rest := strings.TrimSpace(text)
	for {
		name := ""
		for _, n := range []string{"prefill", "decode"} {
			if strings.HasPrefix(rest, n+"=") {
				name = n
			}
		}
		if name == "" {
			return append(list, phase{"", rest})
		}
		rest = rest[len(name)+1:]
		end := len(rest)
		for _, n := range []string{" prefill=", " decode="} {
			if i := strings.Index(rest, n); i >= 0 && i < end {
				end = i
			}
		}
		list = append(list, phase{name, strings.TrimSpace(rest[:end])})
		if rest = strings.TrimSpace(rest[end:]); rest == "" {
			return list
		}
	}
}

// optionsText is what stands in parentheses.
var optionsText = regexp.MustCompile(`\([^()]*\)`)

// checkPhases refuses methods with a "=" outside of parentheses: there is no space before
// the next phase, or there is text before the first.
func checkPhases(methods string) error {
	if right := inParentheses(methods); right != "" {
		return fmt.Errorf("%q: options stand in parentheses: %s", methods, right)
	}
	if name, _, ok := strings.Cut(optionsText.ReplaceAllString(methods, ""), "="); ok && !strings.Contains(name, "(") {
		return fmt.Errorf("%q: phases are prefill and decode, with a space between them: prefill=NAME decode=NAME", methods)
	}
	return nil
}

// inParentheses is the right form of a method whose options follow its name without
// parentheses; "" for any other text.
func inParentheses(text string) string {
	name, rest, _ := strings.Cut(text, " ")
	method, _, _ := strings.Cut(name, ":")
	e := find(method)
	settings := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == ',' })
	if e == nil || len(settings) == 0 {
		return ""
	}
	options := describe(e.defaults)
	for _, s := range settings {
		option, _, ok := strings.Cut(s, "=")
		if !ok || !slices.ContainsFunc(options, func(o Option) bool { return o.Name == option }) {
			return ""
		}
	}
	return name + "(" + strings.Join(settings, ",") + ")"
}

// addMethods adds the methods of a phase.
func (s *Spec) addMethods(ph phase) error {
	if err := checkPhases(ph.methods); err != nil {
		return err
	}
	for _, text := range splitOutside(ph.methods, '+') {
		it, err := parseItem(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		it.prefill = it.entry.Prefill && ph.name != "decode"
		it.decode = it.entry.Decode && ph.name != "prefill"
		if !it.prefill && !it.decode {
			return fmt.Errorf("%s does not work in %s; what does: %s", it.entry.Name, ph.name, strings.Join(names(ph.name), ", "))
		}
		s.merge(it)
	}
	return nil
}

// merge adds an item, or extends an equal one to the other phase.
func (s *Spec) merge(it item) {
	for i := range s.items {
		old := &s.items[i]
		if old.entry == it.entry && old.opts == it.opts && !(old.prefill && it.prefill) && !(old.decode && it.decode) {
			old.prefill = old.prefill || it.prefill
			old.decode = old.decode || it.decode
			return
		}
	}
	s.items = append(s.items, it)
}

// parseItem reads "name:preset(option=value)".
func parseItem(text string) (item, error) {
	head, args := text, ""
	if i := strings.IndexByte(text, '('); i >= 0 {
		if !strings.HasSuffix(text, ")") {
			return item{}, fmt.Errorf("%q: the parenthesis is not closed", text)
		}
		head, args = strings.TrimSpace(text[:i]), text[i+1:len(text)-1]
	}
	name, preset, named := strings.Cut(head, ":")
	e := find(name)
	if e == nil && strings.ContainsAny(name, " \t") {
		return item{}, fmt.Errorf("no method is called %q: methods are joined by +, and a space is between phases: prefill=NAME decode=NAME", name)
	}
	if e == nil {
		return item{}, &UnknownError{name}
	}
	var settings []string
	if named {
		text, ok := e.Presets[preset]
		if !ok {
			return item{}, fmt.Errorf("%s has no preset %q; it has: %s", name, preset, presets(e))
		}
		settings = splitOutside(text, ',')
	}
	opts, err := with(e.defaults, settings)
	if err == nil && strings.TrimSpace(args) != "" {
		opts, err = with(opts, splitOutside(args, ','))
	}
	if err != nil {
		return item{}, fmt.Errorf("%s: %w", name, err)
	}
	it := item{entry: e, opts: opts}
	if it.scorer, err = scorerOf(opts); err != nil {
		return item{}, fmt.Errorf("%s: %w", name, err)
	}
	return it, nil
}

// scorerOf is the method of the select stage that options name, nil for none.
func scorerOf(opts any) (*item, error) {
	c, ok := opts.(scorer)
	if !ok {
		return nil, nil
	}
	text, prefill := c.scorer()
	if text == "" {
		return nil, nil
	}
	it, err := parseItem(text)
	if err != nil {
		return nil, err
	}
	if it.prefill, it.decode = prefill, true; prefill && !it.entry.Prefill {
		return nil, fmt.Errorf("%s selects in decode only, and the options ask for it in prefill", it.entry.Name)
	}
	return &it, nil
}

// splitOutside cuts text at each separator that is not inside parentheses.
func splitOutside(text string, sep byte) []string {
	var parts []string
	depth, from := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case sep:
			if depth == 0 {
				parts = append(parts, text[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, text[from:])
}

// names lists the methods that support a phase; "" is any.
func names(phase string) []string {
	var list []string
	for _, e := range table {
		if phase == "" || phase == "prefill" && e.Prefill || phase == "decode" && e.Decode {
			list = append(list, e.Name)
		}
	}
	return list
}

// presets lists the presets of a method.
func presets(e *Entry) string {
	var list []string
	for name := range e.Presets {
		list = append(list, name)
	}
	if len(list) == 0 {
		return "none"
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// check verifies that each phase has at most one method of a stage and puts the
// methods in the order of stages.
func (s *Spec) check() error {
	slices.SortStableFunc(s.items, func(a, b item) int { return int(a.entry.Stage) - int(b.entry.Stage) })
	all := s.expanded()
	for i, a := range all {
		for _, b := range all[i+1:] {
			if err := compatible(a, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// expanded is the items with combinations replaced by their parts, and with the scorers
// that options name, in the order of stages.
func (s *Spec) expanded() []item {
	var list []item
	for _, it := range s.items {
		if it.scorer != nil {
			part := *it.scorer
			part.prefill, part.decode, part.of = part.prefill && it.prefill, it.decode, it.entry.Name
			if part.prefill || part.decode {
				list = append(list, part)
			}
		}
		if it.entry.parts == nil {
			list = append(list, it)
			continue
		}
		for _, part := range it.entry.parts(it.opts) {
			part.prefill = it.prefill && part.entry.Prefill
			part.decode = it.decode && part.entry.Decode
			part.of = it.entry.Name
			if part.prefill || part.decode {
				list = append(list, part)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b item) int { return int(a.entry.Stage) - int(b.entry.Stage) })
	return list
}

// compatible reports why two methods, a before b, cannot be composed.
func compatible(a, b item) error {
	shared := a.prefill && b.prefill || a.decode && b.decode
	if shared && (a.entry == denseOf() || b.entry == denseOf()) {
		return fmt.Errorf("dense reads everything and cannot be combined with another method in the same phase")
	}
	if shared && a.entry.Stage == b.entry.Stage {
		return fmt.Errorf("%s and %s are both of the stage %q; a phase takes one of each stage: rows, window, select, sample, value", a.name(), b.name(), a.entry.Stage)
	}
	if a.decode && b.decode && a.entry.Forgets && b.entry.Stage == Sample {
		return fmt.Errorf("%s evicts the positions that it does not select and %s samples them; use one of the two", a.name(), b.name())
	}
	if a.prefill && a.entry.Stage == Rows && b.entry.Observes && !b.entry.Stored {
		return fmt.Errorf("%s skips rows of a prompt and %s must see all of them; use one of the two", a.name(), b.name())
	}
	return nil
}

// denseOf is the table line of dense attention.
func denseOf() *Entry { return find("dense") }

// String is the canonical text: methods in the order of stages, with the
// options that differ from their defaults.
func (s *Spec) String() string {
	natural := true
	for _, it := range s.items {
		natural = natural && it.prefill == it.entry.Prefill && it.decode == it.entry.Decode
	}
	if natural {
		return s.format(func(item) bool { return true })
	}
	pre, dec := s.byPhase()
	if pre == "dense" && dec == "dense" {
		return "dense"
	}
	return "prefill=" + pre + " decode=" + dec
}

// byPhase is the canonical text of the methods of each phase.
func (s *Spec) byPhase() (prefill, decode string) {
	return s.format(func(it item) bool { return it.prefill }), s.format(func(it item) bool { return it.decode })
}

// DenseIn reports for which phases no method is sparse.
func (s *Spec) DenseIn() (prefill, decode bool) {
	p, d := s.byPhase()
	return p == denseOf().Name, d == denseOf().Name
}

// Same reports whether two specs say the same, however they are written: in each phase the same
// methods with the same options.
func (s *Spec) Same(t *Spec) bool {
	prefill, decode := s.byPhase()
	otherPrefill, otherDecode := t.byPhase()
	return prefill == otherPrefill && decode == otherDecode
}

// format joins the items that use accepts, "dense" where there is none.
func (s *Spec) format(use func(item) bool) string {
	var parts []string
	for _, it := range s.items {
		if !use(it) {
			continue
		}
		text := it.entry.Name
		if c := changed(it.opts, it.entry.defaults); len(c) > 0 {
			text += "(" + strings.Join(c, ",") + ")"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "dense"
	}
	return strings.Join(parts, " + ")
}

// Dense reports whether no method is sparse.
func (s *Spec) Dense() bool {
	for _, it := range s.items {
		if it.entry != denseOf() {
			return false
		}
	}
	return true
}

// Phases reports for which phases the text names a method; dense counts where it
// is named. A phase without one is dense.
func (s *Spec) Phases() (prefill, decode bool) {
	for _, it := range s.items {
		prefill, decode = prefill || it.prefill, decode || it.decode
	}
	return prefill, decode
}

// Draws reports whether a method samples at random, so that another seed gives other
// results.
func (s *Spec) Draws() bool {
	return slices.ContainsFunc(s.expanded(), func(it item) bool { return it.entry.Draws })
}

// Missing reports a required option that the text does not give. Build refuses such a
// spec too.
func (s *Spec) Missing() error {
	for _, it := range s.expanded() {
		if n, ok := it.opts.(requirer); ok {
			if err := n.missing(); err != nil {
				return fmt.Errorf("sparse: %s: %w", it.name(), err)
			}
		}
	}
	return nil
}

// Whole reports whether a prompt must be prefilled in one pass.
func (s *Spec) Whole() bool {
	for _, it := range s.expanded() {
		w, ok := it.opts.(wholer)
		if it.prefill && (it.entry.Whole || ok && w.whole()) {
			return true
		}
	}
	return false
}

// Build makes a policy of the spec and allocates its memory from env.
func (s *Spec) Build(env *Env) (*Policy, error) { return Build(env, s) }

// Build makes one policy of several specs that plan prompts alike (see
// [Spec.SamePrefill]): the methods of the first plan a prompt, those of every spec
// observe it, and [Policy.SetDecodePolicy] says which of them plans decode steps.
func Build(env *Env, specs ...*Spec) (*Policy, error) {
	c := &Policy{env: env}
	for i, s := range specs {
		if !s.SamePrefill(specs[0]) {
			return nil, fmt.Errorf("sparse: %s and %s read a prompt in different ways and cannot be one policy", specs[0], s)
		}
		all := &methods{spec: s}
		for _, it := range s.expanded() {
			if i > 0 && !it.decode {
				continue // that of the first spec plans prompts for all of them
			}
			methods, err := it.entry.build(it.opts, env)
			if err != nil {
				return nil, fmt.Errorf("sparse: %s: %w", it.name(), err)
			}
			for _, m := range methods {
				all.add(m, it, env.Layers)
			}
		}
		c.all = append(c.all, all)
	}
	if env.err != nil {
		return nil, fmt.Errorf("sparse: memory for %s: %w", specs[0], env.err)
	}
	c.methods = *c.all[0]
	return c, nil
}

// SamePrefill reports whether two specs plan prompts alike: with the same methods, in
// the same order, with the same options, those that have no effect on prompts included.
func (s *Spec) SamePrefill(t *Spec) bool {
	return slices.EqualFunc(s.prefillItems(), t.prefillItems(), func(a, b item) bool {
		return a.entry == b.entry && a.opts == b.opts
	})
}

// prefillItems are the methods that plan prompts, without dense.
func (s *Spec) prefillItems() []item {
	return slices.DeleteFunc(s.expanded(), func(it item) bool { return !it.prefill || it.entry == denseOf() })
}
