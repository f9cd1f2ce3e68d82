package gollm_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
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

	device, sparse, weights, kvcache, tokenizer, engine < serve
	device, sparse, tokenizer, engine, grammar, serve < serve/openai
	serve, serve/openai < cmd
	github.com/prometheus/client_golang < serve/openai

	device, sparse, weights, model, engine < eval
	sparse, weights, model, tokenizer, engine, eval < eval/cli
	device, sparse, weights, model, tokenizer, engine, eval, eval/cli, cuda < cmd
	internal/usage, weights < internal/console
	internal/console, internal/usage < internal/userfile
	internal/console, internal/usage, internal/userfile, device, cpu, sparse, weights, model, tokenizer, engine < internal/openmodel
	internal/console, internal/usage, internal/userfile, internal/openmodel < cmd, eval/cli
	eval, tokenizer, weights, device, cpu < eval/lab
	weights, model, internal/npy < eval/lab/hashnets
	sparse < eval/lab/gpureport
	device, sparse, engine, cpu, cuda < eval/lab/systems
	device, cpu, sparse, weights, model, tokenizer, engine, serve, serve/openai, eval, internal/npy < eval/lab/hostile

	internal/npy < cmd, sparse
	internal/lineedit < cmd
	internal/quote < weights, tokenizer, model, grammar, eval, eval/cli

	device < device/devtest
	weights < model/modeltest
	device, cpu, weights < model/randommodel
	model/randommodel < eval/lab
	model/modeltest < internal/clitest
	device/devtest, model/modeltest, internal/golden, internal/npy, internal/clitest < tests

	golang.org/x/sys < cpu, weights, internal/lineedit
	golang.org/x/term, github.com/rivo/uniseg < internal/lineedit
	golang.org/x/term < internal/console
	gorgonia.org/cu < cuda
	golang.org/x/sync < engine
	github.com/ollama/ollama/fs/ggml < weights
	github.com/sugarme/tokenizer < tokenizer
	github.com/nikolalohinski/gonja < tokenizer
	github.com/spf13 < internal/usage, internal/console, internal/userfile, internal/openmodel, eval/cli, cmd
	github.com/jedib0t/go-pretty < internal/console, eval/cli, cmd
	github.com/agnivade/levenshtein < internal/usage
	gopkg.in/yaml.v3 < internal/openmodel
	github.com/parquet-go/parquet-go < eval, eval/lab/hostile
	golang.org/x/text < eval
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
		{"grammar", module + "tokenizer", false},
		{"grammar", module + "engine", false},
		{"sparse", module + "model", false},
		{"model", module + "sparse", true},
		{"engine", module + "cmd/gollm", false},
		{"engine", module + "internal/openmodel", false},
		{"eval", module + "eval/cli", false},
		{"eval", module + "internal/console", false},
		{"eval/cli", module + "eval/ruler", true},
		{"eval/cli", module + "cmd/gollm", false},
		{"cmd", module + "eval/cli", true},
	} {
		got := slices.Contains(allowed[c.from], nameOf(allowed, c.path))
		if got != c.want {
			t.Errorf("%s may import %s: %v, want %v", c.from, c.path, got, c.want)
		}
	}
}

// The engine and the laboratory are two buildings. What is measured and how, and the
// command above both, may know the engine; the engine knows nothing of them.
var (
	engineRooms = []string{"device", "cpu", "cuda", "grammar", "kvcache", "model", "engine", "sparse", "tokenizer", "weights"}
	outside     = []string{"eval", "scripts", "cmd", "serve", "internal/console", "internal/usage", "internal/userfile", "internal/openmodel"}
)

// TestEngineIsFreeOfTheLab follows the imports of every package of the engine, through as
// many others as there are. It holds whatever the policy says.
func TestEngineIsFreeOfTheLab(t *testing.T) {
	all := imports(t)
	for _, room := range engineRooms {
		if _, err := os.Stat(room); err != nil {
			t.Error(err)
		}
	}
	for _, way := range waysOut(all) {
		t.Errorf("the engine imports what is not of it: %s", way)
	}
}

// TestWaysOutCanFail checks that the test above sees what it should.
func TestWaysOutCanFail(t *testing.T) {
	for _, c := range []struct {
		all  map[string][]string
		want []string
	}{
		{map[string][]string{"model": {"fmt", module + "device"}, "eval": {module + "model"}}, nil},
		{map[string][]string{"model": {module + "eval/metric"}}, []string{"model > eval/metric"}},
		{map[string][]string{"cpu/kernel": {module + "scripts"}}, []string{"cpu/kernel > scripts"}},
		{map[string][]string{"model": {module + "internal/quote"}, "internal/quote": {module + "internal/console"}},
			[]string{"model > internal/quote > internal/console"}},
		{map[string][]string{"engine": {module + "evaluation", module + "model"}, "model": {module + "engine"}}, nil},
	} {
		if got := waysOut(c.all); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.all, got, c.want)
		}
	}
}

// waysOut is the imports by which the engine comes to what is outside of it, each as the
// packages on the way.
func waysOut(all map[string][]string) (ways []string) {
	var follow func(folder, way string, seen map[string]bool)
	follow = func(folder, way string, seen map[string]bool) {
		for _, path := range all[folder] {
			to, ours := strings.CutPrefix(path, module)
			if !ours || seen[to] {
				continue
			}
			seen[to] = true
			if isUnder(to, outside) {
				ways = append(ways, way+" > "+to)
				continue
			}
			follow(to, way+" > "+to, seen)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		if isUnder(folder, engineRooms) {
			follow(folder, folder, map[string]bool{})
		}
	}
	return ways
}

// isUnder reports whether a folder is one of some, or in one.
func isUnder(folder string, of []string) bool {
	return slices.ContainsFunc(of, func(name string) bool { return folder == name || strings.HasPrefix(folder, name+"/") })
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
