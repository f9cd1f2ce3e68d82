package ruler

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWordingOfAnUnknownFileIsNotCalledOfficial reads a file of the official form
// with other sentences.
func TestWordingOfAnUnknownFileIsNotCalledOfficial(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, officialPath)
	var b strings.Builder
	b.WriteString("TASKS = {\n")
	for _, key := range officialKeys {
		fmt.Fprintf(&b, "    '%s': {\n        'tokens_to_generate': 9,\n        'template': \"\"\"Read of %s.\\n{context}\"\"\",\n        'answer_prefix': \"\"\" It is\"\"\",\n    },\n", key, key)
	}
	b.WriteString("}\n")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	w, known, err := LoadWording(dir)
	if err != nil {
		t.Fatal(err)
	}
	if known || w.Name == "official" || !strings.Contains(w.Name, "SHA-256 ") || w.Text[Chain].Template != "Read of variable_tracking.\n{context}" || w.Text[Question].Prefix != " It is" {
		t.Errorf("known %v, %+v", known, w)
	}
	g, err := NewGenerator(Options{Task: tasks[0], Length: 300, Seed: 1, Count: words, Wording: w, Fine: true})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := g.Next(); err != nil || !strings.HasPrefix(r.Input, "Read of niah.\n") {
		t.Errorf("%q, %v", r.Input, err)
	}
}
