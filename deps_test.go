package gollm_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gollm/gollm/"

// policy says who may import whom, directly: in "a, b < c", c may import a and
// b. A folder of this module stands for the packages under it too, unless they
// have a name of their own here; any other path stands for what begins with it.
// What is not listed is not allowed, but for the standard library. Test files,
// named tests below, may import anything.
const policy = `
	device < cpu, cuda, weights, kvcache, sparse
	device, sparse, weights < model
	device, sparse, weights, model, kvcache, tokenizer < engine
	device, sparse, weights, model, engine < eval
	device, sparse, weights, model, kvcache, tokenizer, engine, eval, cpu, cuda < cmd
	eval, tokenizer, weights, device, cpu < scripts
	weights, model, internal/npy < scripts/hashnets
	sparse < scripts/gpureport
	device, sparse, engine, cpu, cuda < scripts/systems
	device, cpu, sparse, weights, model, tokenizer, engine, eval, internal/npy < scripts/hostile

	internal/npy < cmd, sparse
	internal/lineedit < cmd
	internal/quote < weights, tokenizer, model, eval

	device < device/devtest
	weights < model/modeltest
	device/devtest, model/modeltest, internal/golden, internal/npy < tests

	golang.org/x/sys < cpu, weights, internal/lineedit
	golang.org/x/term, github.com/rivo/uniseg < internal/lineedit
	gorgonia.org/cu < cuda
	golang.org/x/sync < engine
	github.com/ollama/ollama/fs/ggml < weights
	github.com/sugarme/tokenizer < tokenizer
	github.com/nikolalohinski/gonja < tokenizer
	github.com/spf13, github.com/jedib0t/go-pretty, github.com/agnivade/levenshtein, golang.org/x/term < cmd
	gopkg.in/yaml.v3 < cmd
`

// TestImports holds the imports of every package against the policy.
func TestImports(t *testing.T) {
	allowed := parsePolicy(t, policy)
	for folder, paths := range imports(t) {
		from := nameOf(allowed, folder)
		may, listed := allowed[from]
		if !listed {
			t.Errorf("%s is not in the policy", folder)
			continue
		}
		for _, path := range paths {
			to := nameOf(allowed, path)
			if !standard(path) && to != from && !slices.Contains(may, to) {
				t.Errorf("%s imports %s, which the policy does not allow", folder, path)
			}
		}
	}
}

// TestPolicyCanFail checks that the test above sees what it should.
func TestPolicyCanFail(t *testing.T) {
	allowed := parsePolicy(t, policy)
	for _, c := range []struct {
		from, path string
		want       bool
	}{
		{"cpu", module + "device", true},
		{"cpu", module + "model", false},
		{"cpu", module + "device/devtest", false},
		{"cpu", "golang.org/x/sys/cpu", true},
		{"cpu", "golang.org/x/system", false},
		{"device", "golang.org/x/sys/cpu", false},
		{"tokenizer", module + "weights", false},
		{"sparse", module + "model", false},
		{"model", module + "sparse", true},
		{"engine", module + "cmd/gollm", false},
	} {
		got := slices.Contains(allowed[c.from], nameOf(allowed, c.path))
		if got != c.want {
			t.Errorf("%s may import %s: %v, want %v", c.from, c.path, got, c.want)
		}
	}
}

// imports are the paths that each package imports, whatever the platform and the
// build tags; tests and modules of their own, such as the generator, are left out.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(path)
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || folder == "." {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			all[folder] = append(all[folder], strings.Trim(spec.Path.Value, `"`))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found %d packages, want 10 or more", len(all))
	}
	return all
}

// skipFolder is fs.SkipDir for folders that hold no package of this module.
func skipFolder(path string) error {
	if path == "." {
		return nil
	}
	name := filepath.Base(path)
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	if err == nil || name == "testdata" || name == "build" || strings.HasPrefix(name, ".") {
		return fs.SkipDir
	}
	return nil
}

// parsePolicy is what each name may import; names that import nothing are keys too.
func parsePolicy(t *testing.T, text string) map[string][]string {
	t.Helper()
	allowed := map[string][]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		lower, upper, ok := strings.Cut(line, " < ")
		if !ok {
			t.Fatalf("policy line %q has no <", line)
		}
		for _, name := range strings.Split(upper, ", ") {
			allowed[name] = append(allowed[name], strings.Split(lower, ", ")...)
		}
		for _, name := range strings.Split(lower, ", ") {
			allowed[name] = append(allowed[name], []string{}...)
		}
	}
	return allowed
}

// nameOf is the name that stands for an import path: the longest one listed
// that the path is under, or the path itself.
func nameOf(allowed map[string][]string, path string) string {
	path = strings.TrimPrefix(path, module)
	best := ""
	for name := range allowed {
		if (path == name || strings.HasPrefix(path, name+"/")) && len(name) > len(best) {
			best = name
		}
	}
	if best == "" {
		return path
	}
	return best
}

// standard reports whether a path is of the standard library.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
