package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gollm/gollm/sparse"
)

func TestAttn(t *testing.T) {
	list := ok(t, "", "attn")
	for _, e := range sparse.Methods() {
		if !regexp.MustCompile(`(?m)^` + e.Name + ` `).MatchString(list) {
			t.Errorf("gollm attn does not list %s:\n%s", e.Name, list)
		}
		doc := ok(t, "", "attn", e.Name)
		for _, word := range []string{e.Name, e.Title, e.Reads} {
			if !strings.Contains(doc, word) {
				t.Errorf("gollm attn %s does not say %q:\n%s", e.Name, word, doc)
			}
		}
		for _, o := range e.Options() {
			if !regexp.MustCompile(`(?m)^` + o.Name + ` `).MatchString(doc) {
				t.Errorf("gollm attn %s does not explain %s:\n%s", e.Name, o.Name, doc)
			}
			for _, word := range append(o.Values, o.Doc, o.Default) {
				if !strings.Contains(doc, word) {
					t.Errorf("gollm attn %s does not say %q of %s:\n%s", e.Name, word, o.Name, doc)
				}
			}
		}
		speed, measured := e.Speed()
		if measured != (e.Decode && e.Name != "dense" && e.Name != "h2o") || (measured && !strings.Contains(doc, speed.String())) {
			t.Errorf("gollm attn %s, which plans decode steps: %v, does not say how fast they are:\n%s", e.Name, e.Decode, doc)
		}
		slow := regexp.MustCompile(`(?m)^` + e.Name + ` .* \d\.\d\d \*`).MatchString(list)
		if slow != (measured && speed.At128k < 1) {
			t.Errorf("gollm attn marks %s as slow: %v, and it is %.2f times as fast as dense:\n%s", e.Name, slow, speed.At128k, list)
		}
		for preset, settings := range e.Presets {
			if !strings.Contains(doc, preset) || !strings.Contains(doc, settings) {
				t.Errorf("gollm attn %s does not say that %s is %s:\n%s", e.Name, preset, settings, doc)
			}
		}
	}
}
