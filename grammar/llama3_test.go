package grammar

import (
	"os"
	"strings"
	"testing"

	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/weights"
)

// llama3 is the vocabulary of Llama 3. Without the file the test is skipped on a desk and fails
// in continuous integration.
func llama3(t testing.TB) (*tokenizer.Tokenizer, []string) {
	t.Helper()
	path := "../../shared/data/tokenizer/llama-bpe.gguf"
	f, err := weights.Open(path)
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("test data is missing: %v", err)
	case err != nil:
		t.Skipf("test data is missing: %v", err)
	}
	defer f.Close()
	vocab, err := tokenizer.FromMetadata(f)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(vocab)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, tok.Len())
	for id := range texts {
		texts[id] = tok.Piece(int32(id))
	}
	return tok, texts
}

func llama3Vocabulary(t testing.TB) (*tokenizer.Tokenizer, *Vocabulary) {
	t.Helper()
	tok, texts := llama3(t)
	v, err := NewVocabulary(texts, tok.Ends())
	if err != nil {
		t.Fatal(err)
	}
	return tok, v
}

// answers are schemas as they are used, each with a document.
var answers = []struct{ name, schema, document string }{
	{"object", `{"type": "object"}`, `{"name": "Ada Lovelace", "born": 1815, "fields": ["mathematics", "computing"], "alive": false, "address": {"city": "London"}}`},
	{"extract", `{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "email": {"type": "string", "format": "email"},
		"kind": {"enum": ["person", "company", "government agency"]}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5}}, "required": ["name", "age", "email", "kind", "tags"], "additionalProperties": false}`,
		`{"name": "Ada Lovelace", "age": 36, "email": "ada.lovelace@example.org", "kind": "person", "tags": ["mathematics", "analytical engine"]}`},
	{"steps", `{"type": "object", "properties": {"steps": {"type": "array", "items": {"type": "object", "properties": {"explanation": {"type": "string"}, "output": {"type": "string"}}, "required": ["explanation", "output"], "additionalProperties": false}}, "final": {"type": "string"}}, "required": ["steps", "final"], "additionalProperties": false}`,
		`{"steps": [{"explanation": "Subtract 7 from both sides of the equation.", "output": "8x = -30"}, {"explanation": "Divide both sides by 8.", "output": "x = -30/8"}], "final": "x = -15/4"}`},
	{"pattern", `{"type": "object", "properties": {"title": {"type": "string", "pattern": "^[A-Z][A-Za-z ]+$"}, "when": {"type": "string", "format": "date-time"}, "id": {"type": "string", "format": "uuid"}}, "required": ["title", "when", "id"], "additionalProperties": false}`,
		`{"title": "The Analytical Engine", "when": "1843-09-05T12:30:00Z", "id": "123e4567-e89b-12d3-a456-426614174000"}`},
	{"limited", `{"type": "object", "properties": {"summary": {"type": "string", "minLength": 5, "maxLength": 60}}, "required": ["summary"], "additionalProperties": false}`,
		`{"summary": "Notes on the analytical engine, with the first program."}`},
	{"anyOf", `{"$defs": {"node": {"anyOf": [{"type": "object", "properties": {"op": {"enum": ["add", "sub"]}, "left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}, "required": ["op", "left", "right"], "additionalProperties": false},
		{"type": "object", "properties": {"op": {"enum": ["neg"]}, "of": {"$ref": "#/$defs/node"}}, "required": ["op", "of"], "additionalProperties": false}, {"type": "number"}]}}, "$ref": "#/$defs/node"}`,
		`{"op": "add", "left": {"op": "neg", "of": 12.5}, "right": {"op": "sub", "left": 3, "right": {"op": "neg", "of": 4}}}`},
}

// TestMaskOfLlama3 holds masks of a real vocabulary against their definition, in states along
// the answers.
func TestMaskOfLlama3(t *testing.T) {
	tok, v := llama3Vocabulary(t)
	for _, a := range answers {
		c := v.Bind(mustCompile(t, a.schema, Options{}))
		ids := tok.Encode(a.document, tokenizer.EncodeOptions{})
		var text strings.Builder
		for i, id := range ids {
			m := c.Matcher()
			if !m.Accept([]byte(text.String())) {
				t.Fatalf("%s does not allow %s", a.schema, text.String())
			}
			if i%15 == 4 {
				checkMask(t, c, []byte(text.String()), m.Mask())
			}
			text.WriteString(v.texts[id])
		}
		if text.String() != a.document || !accepts(t, c.g, a.document) {
			t.Errorf("%s does not allow %s", a.schema, text.String())
		}
	}
}
