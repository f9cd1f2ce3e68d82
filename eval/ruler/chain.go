package ruler

import (
	"errors"
	"fmt"
	"strings"
)

// The variable tracking task: one chain of hops assignments among lines of
// noise, after a worked example.
const (
	hops       = 4
	upper      = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	exampleFor = 500 // tokens of the worked example
)

// chainMaker makes prompts of variable tracking.
type chainMaker struct {
	g      *Generator
	worked string // the example with its answer
	bare   bool   // makes the example itself
}

func (g *Generator) startChain() error {
	m := &chainMaker{g: g}
	if err := m.workExample(); err != nil {
		return err
	}
	g.maker, g.step = m, 10
	if g.o.Length < 4096 {
		g.step = 5
	}
	trial := g.step
	g.least = g.step
	if g.o.Fine {
		g.step, g.least = 1, hops+1
	}
	return g.fit(trial, g.o.Task.NewToken+g.o.Count(m.worked))
}

// workExample fits and draws the example, which is a file of one row with a
// length of its own.
func (m *chainMaker) workExample() error {
	inner := *m.g
	inner.o.Length = min(exampleFor, max(m.g.o.Length/2, 1))
	if !m.g.o.Fine {
		inner.o.Length = exampleFor
	}
	inner.o.Task.NewToken = 0
	inner.maker = &chainMaker{g: &inner, bare: true}
	inner.step, inner.least = 5, 5
	inner.text = m.g.body.Template + m.g.body.Prefix
	if err := inner.fit(5, 0); err != nil {
		return err
	}
	p, _, err := inner.sample()
	misfit := new(MisfitError)
	if errors.As(err, &misfit) && inner.o.Length < exampleFor { // the smallest one: what does not fit is the whole prompt then
		inner.o.Length = exampleFor
		p, _, err = inner.sample()
	}
	if errors.As(err, &misfit) {
		return m.g.misfit(misfit.Least + m.g.o.Task.NewToken) // the length that was asked for, and not that of the example
	}
	if err != nil {
		return err
	}
	m.worked = p.text + " " + strings.Join(p.answers, " ") + "\n"
	return nil
}

// make draws names, the value and the places of the assignments.
func (m *chainMaker) make(n int) (prompt, bool, error) {
	r := m.g.rng
	size, value := 5, "12345"
	if m.bare {
		size = 3
	}
	names, again := drawNames(r, size)
	if !m.bare {
		value = m.number()
		if again {
			m.number() // the official generator begins a second chain before it fails
		}
	}
	if again || n < len(names) {
		return prompt{}, true, nil
	}
	slots := []string{"{context}", m.context(n, names, value), "{query}", value, "{num_v}", fmt.Sprint(hops + 1)}
	return prompt{text: fill(m.g.text, slots...), prefix: fill(m.g.body.Prefix, slots...), answers: names}, false, nil
}

// number draws a value.
func (m *chainMaker) number() string { return fmt.Sprint(m.g.numpy.between(10000, 99999)) }

// drawNames draws the names of a chain; again is that two were the same.
func drawNames(r *random, size int) (names []string, again bool) {
	seen := map[string]bool{}
	for len(names) < hops+1 || len(seen) < hops+1 {
		name := r.letters(upper, size)
		again = again || len(names) > hops
		names, seen[name] = append(names, name), true
	}
	return names, again
}

// context is n lines of noise with the assignments among them, in their order.
func (m *chainMaker) context(n int, names []string, value string) string {
	lines := make([]string, n, n+len(names))
	for i := range lines {
		lines[i] = noiseLine
	}
	for j, at := range ascending(m.g.rng.sample(n, len(names))) {
		line := "VAR " + names[0] + " = " + value
		if j > 0 {
			line = "VAR " + names[j] + " = VAR " + names[j-1] + " " // the official line has the blank
		}
		lines = insert(lines, at+j, line)
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), ". \n", ".\n")
}

// example puts the worked example, with fresh names and value, before the task.
func (m *chainMaker) example(text string) string {
	if m.bare {
		return text
	}
	fresh := m.worked
	words := strings.Fields(fresh)
	for _, name := range words[len(words)-hops-1:] {
		fresh = strings.ReplaceAll(fresh, name, m.g.rng.letters(upper, len(name)))
	}
	fresh = strings.ReplaceAll(fresh, "12345", m.number())
	head, _, _ := strings.Cut(m.g.o.Template, "{t}")
	return text[:len(head)] + fresh + "\n" + text[len(head):]
}
