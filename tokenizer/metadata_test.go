package tokenizer

import (
	"os"
	"testing"

	"github.com/ollama/ollama/fs/ggml"
)

// ggufMetadata reads the metadata of a GGUF file that is known to be well formed.
type ggufMetadata struct{ kv ggml.KV }

func (m ggufMetadata) String(key string) (string, bool) {
	s, ok := m.kv[key].(string)
	return s, ok
}

func (m ggufMetadata) Uint(key string) (uint64, bool) {
	switch n := m.kv[key].(type) {
	case uint32:
		return uint64(n), true
	case int32:
		return uint64(n), true
	}
	return 0, false
}

func (m ggufMetadata) Bool(key string) (bool, bool) {
	b, ok := m.kv[key].(bool)
	return b, ok
}

func (m ggufMetadata) Strings(key string) ([]string, bool) {
	s := m.kv.Strings(key)
	return s, len(s) > 0
}

func (m ggufMetadata) Floats(key string) ([]float32, bool) {
	f := m.kv.Floats(key)
	return f, len(f) > 0
}

func (m ggufMetadata) Ints(key string) ([]int32, bool) {
	n := m.kv.Ints(key)
	return n, len(n) > 0
}

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
	f, err := os.Open(sharedFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := ggml.Decode(f, -1)
	if err != nil {
		t.Fatal(err)
	}
	v, err := FromMetadata(ggufMetadata{g.KV()})
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
