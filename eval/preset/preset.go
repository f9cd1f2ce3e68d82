package preset

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// Preset is the protocol of a publication.
type Preset struct {
	Name       string   `json:"name"`
	Paper      string   `json:"paper"`
	Attn       []string `json:"attn"`  // the first is what the others are compared with
	Phase      string   `json:"phase"` // where attention is sparse
	Ruler      *Suite   `json:"ruler"`
	Longbench  *Suite   `json:"longbench"`
	Longbench2 *Suite   `json:"longbench2"`
	Notes      []string `json:"notes"` // what is guessed, and what is not kept
	Published  []Figure `json:"published"`
}

// Suite is how a publication runs a suite; what is empty or 0 is as the suite has
// it.
type Suite struct {
	Tasks     string `json:"tasks"`
	Lengths   string `json:"lengths"`
	Samples   int    `json:"samples"`
	NewTokens int    `json:"new_tokens"`
	MaxLength int    `json:"max_length"` // tokens of a prompt
	Template  string `json:"template"`   // of RULER prompts
	Prefix    string `json:"prefix"`     // of RULER answers
	Grader    string `json:"grader"`
	Plain     bool   `json:"plain"` // no chat template
}

// Figure is a published score.
type Figure struct {
	Suite  string  `json:"suite"`
	Model  string  `json:"model"`
	What   string  `json:"what"`
	Dense  float64 `json:"dense"`
	Sparse float64 `json:"sparse"`
}

//go:embed presets.json
var source []byte

// presets reads the file once.
var presets = sync.OnceValue(func() []Preset {
	var list []Preset
	d := json.NewDecoder(bytes.NewReader(source))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		panic("preset: presets.json: " + err.Error()) // it is part of the program, and a test reads it
	}
	return list
})

// Names lists the presets.
func Names() []string {
	var names []string
	for _, p := range presets() {
		names = append(names, p.Name)
	}
	return names
}

// Find is the preset of that name.
func Find(name string) (Preset, error) {
	for _, p := range presets() {
		if p.Name == name {
			return p, nil
		}
	}
	return Preset{}, fmt.Errorf("preset: no preset is called %q; want one of %s", name, strings.Join(Names(), ", "))
}

// Of is how the publication runs a suite; nil where it does not.
func (p *Preset) Of(suite string) *Suite {
	switch suite {
	case "ruler":
		return p.Ruler
	case "longbench":
		return p.Longbench
	case "longbench2":
		return p.Longbench2
	}
	return nil
}

// Remarks is what a report of a suite under the preset must say.
func (p *Preset) Remarks(suite string) []string {
	list := []string{"preset " + p.Name + ": the protocol of " + p.Paper}
	list = append(list, p.Notes...)
	for _, f := range p.Published {
		if f.Suite == suite {
			list = append(list, fmt.Sprintf("published for %s, %s: dense %.2f, sparse %.2f; a dense score far from it is a broken template or other data, not attention", f.Model, f.What, f.Dense, f.Sparse))
		}
	}
	return list
}
