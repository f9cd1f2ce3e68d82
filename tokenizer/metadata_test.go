package tokenizer

import (
	"fmt"
	"os"
	"testing"

	"github.com/gollm/gollm/weights"
)

// mapMetadata is metadata held in a map, with the types of [Metadata].
type mapMetadata map[string]any

func mapValue[T any](m mapMetadata, key string) (T, error) {
	v, ok := m[key].(T)
	if !ok {
		return v, fmt.Errorf("key %s is %T, want %T", key, m[key], v)
	}
	return v, nil
}

func (m mapMetadata) Has(key string) bool                  { _, ok := m[key]; return ok }
func (m mapMetadata) String(key string) (string, error)    { return mapValue[string](m, key) }
func (m mapMetadata) Uint(key string) (int, error)         { return mapValue[int](m, key) }
func (m mapMetadata) Bool(key string) (bool, error)        { return mapValue[bool](m, key) }
func (m mapMetadata) Strings(key string) ([]string, error) { return mapValue[[]string](m, key) }
func (m mapMetadata) Floats(key string) ([]float64, error) { return mapValue[[]float64](m, key) }
func (m mapMetadata) Ints(key string) ([]int, error)       { return mapValue[[]int](m, key) }

// sharedVocabs are the shared vocabularies.
var sharedVocabs = []string{"llama-bpe", "llama-spm"}

// sharedFile returns the path of a shared test file. Without it the test is skipped
// on a desk and fails in continuous integration.
func sharedFile(t testing.TB, name string) string {
	t.Helper()
	path := "../../shared/data/" + name
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("test data is missing: %v", err)
		}
		t.Skipf("test data is missing: %v", err)
	}
	return path
}

func readShared(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(sharedFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sharedVocab reads the vocabulary of a shared GGUF file.
func sharedVocab(t testing.TB, name string) Vocab {
	t.Helper()
	f, err := weights.Open(sharedFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v, err := FromMetadata(f)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sharedTokenizer(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := New(sharedVocab(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
