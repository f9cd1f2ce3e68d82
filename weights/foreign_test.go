package weights

import (
	"os"
	"path/filepath"
	"testing"
)

// TestForeign opens files of other formats.
func TestForeign(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"pointer":     {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", []string{"git-lfs pointer", "git lfs pull"}},
		"page":        {"<!DOCTYPE html><html><body>Sign in", []string{"web page", "download the file again"}},
		"page spaced": {"\n\n  <html lang=en>", []string{"web page", "download the file again"}},
		"xml":         {"<?xml version='1.0'?><Error>", []string{"XML", "download the file again"}},
		"safetensors": {"\x02\x00\x00\x00\x00\x00\x00\x00{}", []string{"safetensors", "convert"}},
		"zip":         {"PK\x03\x04rest", []string{"PyTorch", "convert"}},
		"pickle":      {"\x80\x02\x8a\x0a", []string{"PyTorch", "convert"}},
		"gzip":        {"\x1f\x8b\x08\x00", []string{"gzip", "unpack"}},
		"zstd":        {"\x28\xb5\x2f\xfd\x00", []string{"zstd", "unpack"}},
		"ggjt":        {"tjgg\x03\x00\x00\x00", []string{"before GGUF", "get the model in GGUF"}},
		"json":        {`{"architectures": ["LlamaForCausalLM"]}`, []string{"JSON", ".gguf file that holds the weights"}},
		"zeros":       {"\x00\x00\x00\x00\x00\x00\x00\x00", []string{`begins with "\x00\x00\x00\x00"`, `want "GGUF"`}},
		"one byte":    {" ", []string{`begins with " "`, `want "GGUF"`}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path)
			wantError(t, err, append(c.want, path)...)
		})
	}
}
