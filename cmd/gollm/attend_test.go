package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/npy"
)

// save writes an array and returns its path.
func save(t *testing.T, a *npy.Array) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "*.npy")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := npy.Write(f, a); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// randomArray is normal numbers of a shape.
func randomArray(seed uint64, shape ...int) *npy.Array {
	rng := rand.New(rand.NewPCG(seed, 3))
	a := &npy.Array{Shape: shape}
	n := 1
	for _, d := range shape {
		n *= d
	}
	for range n {
		a.Data = append(a.Data, float32(rng.NormFloat64()))
	}
	return a
}

// load reads an array.
func load(t *testing.T, path string) *npy.Array {
	t.Helper()
	a, err := npy.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const attendHeads, attendKV, attendLen, attendDim = 4, 2, 150, 8

// TestAttendIsAttentionOverItsIndices holds the result against float64
// attention over the keys that --indices names.
func TestAttendIsAttentionOverItsIndices(t *testing.T) {
	q, k, v := randomArray(1, attendHeads, attendLen, attendDim), randomArray(2, attendKV, attendLen, attendDim), randomArray(3, attendKV, attendLen, attendDim)
	qf, kf, vf := save(t, q), save(t, k), save(t, v)
	for _, tt := range []struct {
		spec, phase string
		flag, rows  int
	}{
		{"dense", "prefill", 0, attendLen},
		{"topk(k=9,sink=2,window=5)", "prefill", 4, 4},
		{"topk(k=9,sink=2,window=5)", "decode", 0, 1},
		{"streaming(sink=2,window=50)", "decode", 20, 20},
		{"streaming(sink=2,window=50)", "decode", attendLen, attendLen},
	} {
		out, idx := filepath.Join(t.TempDir(), "out.npy"), filepath.Join(t.TempDir(), "idx.json")
		ok(t, "", "attend", "--attn", tt.spec, "--q", qf, "--k", kf, "--v", vf, "-o", out, "--phase", tt.phase, "--rows", fmt.Sprint(tt.flag), "--indices", idx)
		y := load(t, out)
		if want := []int{attendHeads, tt.rows, attendDim}; !slices.Equal(y.Shape, want) {
			t.Fatalf("%v: shape %v, want %v", tt, y.Shape, want)
		}
		text, err := os.ReadFile(idx)
		if err != nil {
			t.Fatal(err)
		}
		file := clitest.Decode[indexRows](t, string(text))
		if file.Attn != tt.spec || file.Phase != tt.phase || len(file.Rows) != attendHeads*tt.rows {
			t.Errorf("%v: %q, %q and %d rows", tt, file.Attn, file.Phase, len(file.Rows))
		}
		for _, x := range file.Rows {
			want := attentionOf(q, k, v, x)
			at := (x.Head*tt.rows + x.Row - (attendLen - tt.rows)) * attendDim
			for i, w := range want {
				if math.Abs(float64(y.Data[at+i])-w) > 1e-5 {
					t.Fatalf("%v: head %d row %d: %v, want %v", tt, x.Head, x.Row, y.Data[at:at+attendDim], want)
				}
			}
		}
	}
}

// indexRows is the file of --indices.
type indexRows struct {
	Attn, Phase string
	Rows        []index
}

// attentionOf is softmax attention of one row over the keys of an index.
func attentionOf(q, k, v *npy.Array, x index) []float64 {
	kv := x.Head * attendKV / attendHeads
	y, sum := make([]float64, attendDim), 0.0
	for _, j := range x.Keys {
		var s float64
		for i := range attendDim {
			s += float64(q.Data[(x.Head*attendLen+x.Row)*attendDim+i]) * float64(k.Data[(kv*attendLen+int(j))*attendDim+i])
		}
		w := math.Exp(s / math.Sqrt(attendDim))
		sum += w
		for i := range y {
			y[i] += w * float64(v.Data[(kv*attendLen+int(j))*attendDim+i])
		}
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

// TestAttendIndicesOfBrokenQueries: weights that are not finite are null, a row that
// reads nothing has an empty list, and the warning comes as it does without the file.
func TestAttendIndicesOfBrokenQueries(t *testing.T) {
	q, k, v := randomArray(1, attendHeads, attendLen, attendDim), randomArray(2, attendKV, attendLen, attendDim), randomArray(3, attendKV, attendLen, attendDim)
	for h := range attendHeads { // of the last row; the signs of what is infinite still collide
		q.Data[(h+1)*attendLen*attendDim-1] = float32(math.Inf(1))
	}
	files := []string{"--q", save(t, q), "--k", save(t, k), "--v", save(t, v), "--phase", "decode"}
	for _, tt := range []struct {
		spec, has string
	}{
		{"magicpig(sink=2,local=2,dense=0)", "null"},
		{"santa(samples=3,exec=flash)", `"keys":[]`},
		{"santa(samples=3,alloc=largest_remainder)", `"keys":[]`},
	} {
		out, idx := filepath.Join(t.TempDir(), "out.npy"), filepath.Join(t.TempDir(), "idx.json")
		args := append([]string{"attend", "--attn", tt.spec, "-o", out}, files...)
		without := gollm("", args...)
		with := gollm("", append(args, "--indices", idx)...)
		const warning = "numbers of the result are not numbers"
		if with.Code != console.ExitOK || strings.Contains(with.Errs, warning) != strings.Contains(without.Errs, warning) || len(load(t, out).Data) == 0 {
			t.Errorf("%s: %+v with --indices, %+v without", tt.spec, with, without)
		}
		text, err := os.ReadFile(idx)
		if err != nil {
			t.Fatal(err)
		}
		rows := clitest.Decode[indexRows](t, string(text)).Rows
		if len(rows) != attendHeads || !strings.Contains(string(text), tt.has) || strings.Contains(string(text), `"keys":null`) {
			t.Errorf("%s: %d rows, want %d and a %s in\n%s", tt.spec, len(rows), attendHeads, tt.has, text)
		}
	}
}

// TestAttendIndicesOfFrozenRows: there is one object for each layer, head and row, those
// that a layer does not update included.
func TestAttendIndicesOfFrozenRows(t *testing.T) {
	const layers, rows = 4, 100
	q, k, v := randomArray(1, layers, attendHeads, attendLen, attendDim), randomArray(2, layers, attendKV, attendLen, attendDim), randomArray(3, layers, attendKV, attendLen, attendDim)
	for _, spec := range []string{"etf(psi=0.3,ls=1,sink=60)", "cpe(psi=0.3,ls=1,sink=60)"} {
		out, idx := filepath.Join(t.TempDir(), "out.npy"), filepath.Join(t.TempDir(), "idx.json")
		ok(t, "", "attend", "--attn", spec, "--q", save(t, q), "--k", save(t, k), "--v", save(t, v), "-o", out, "--rows", fmt.Sprint(rows), "--indices", idx)
		y := load(t, out)
		text, err := os.ReadFile(idx)
		if err != nil {
			t.Fatal(err)
		}
		seen, frozen := map[[3]int]bool{}, 0
		for _, x := range clitest.Decode[indexRows](t, string(text)).Rows {
			seen[[3]int{x.Layer, x.Head, x.Row}] = true
			if x.Frozen {
				frozen++
			}
			at := ((x.Layer*attendHeads+x.Head)*rows + x.Row - (attendLen - rows)) * attendDim
			zero := !slices.ContainsFunc(y.Data[at:at+attendDim], func(v float32) bool { return v != 0 })
			if x.Keys == nil || x.Frozen != (len(x.Keys) == 0) || x.Frozen != zero {
				t.Fatalf("%s: %+v, a result of zeros: %v", spec, x, zero)
			}
		}
		if len(seen) != layers*attendHeads*rows || frozen == 0 {
			t.Errorf("%s: %d of %d objects, %d frozen", spec, len(seen), layers*attendHeads*rows, frozen)
		}
	}
}

// TestAttendLayers: layers in one file and in a file each are the same.
func TestAttendLayers(t *testing.T) {
	const layers = 3
	arrays := []*npy.Array{
		randomArray(1, layers, attendHeads, attendLen, attendDim),
		randomArray(2, layers, attendKV, attendLen, attendDim), randomArray(3, layers, attendKV, attendLen, attendDim),
	}
	dir := t.TempDir()
	one, many, audit := filepath.Join(dir, "one.npy"), filepath.Join(dir, "many.npy"), filepath.Join(dir, "audit.json")
	page := filepath.Join(dir, "audit.html")
	args := []string{"attend", "--attn", "sketchwalk(tau=2,r=4)"}
	r := gollm("", append(args, "--q", save(t, arrays[0]), "--k", save(t, arrays[1]), "--v", save(t, arrays[2]), "-o", one, "--audit", audit, "--audit", page)...)
	if r.Code != console.ExitOK || r.Out != "" || !strings.Contains(r.Errs, "audit of sketchwalk(tau=2,r=4)") {
		t.Fatalf("%+v", r)
	}
	args = append(args, "-o", many)
	for l := range layers {
		var files []string
		for _, a := range arrays {
			size := len(a.Data) / layers
			files = append(files, save(t, &npy.Array{Shape: a.Shape[1:], Data: a.Data[l*size : (l+1)*size]}))
		}
		args = append(args, "--layers-of", strings.Join(files, ","))
	}
	ok(t, "", args...)
	a, b := load(t, one), load(t, many)
	if !slices.Equal(a.Shape, []int{layers, attendHeads, attendLen, attendDim}) || !slices.Equal(a.Shape, b.Shape) || !slices.Equal(a.Data, b.Data) {
		t.Errorf("shapes %v and %v; the data are equal: %v", a.Shape, b.Shape, slices.Equal(a.Data, b.Data))
	}
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	rep := clitest.Decode[eval.Audit](t, string(text))
	if cells := rep.Phases[0].Cells; len(cells) != layers || cells[1][0].Error != 0 || cells[2][0].Error == 0 {
		t.Errorf("layers 0 and 1 are dense and layer 2 is not, but the errors are %v", cells)
	}
	if html, err := os.ReadFile(page); err != nil || !json.Valid(text) || !strings.Contains(string(html), "sketchwalk") {
		t.Errorf("the page: %v", err)
	}
}

func TestAttendErrors(t *testing.T) {
	q := save(t, randomArray(1, 4, 20, 8))
	k := save(t, randomArray(1, 2, 20, 8))
	short, odd, flat := save(t, randomArray(1, 2, 19, 8)), save(t, randomArray(1, 3, 20, 8)), save(t, randomArray(1, 20, 8))
	out := filepath.Join(t.TempDir(), "out.npy")
	bad := clitest.WriteFile(t, "bad.npy", "this is no array")
	for _, tt := range []struct {
		code  int
		args  []string
		words []string
	}{
		{console.ExitUsage, []string{}, []string{"--layers-of Q,K,V"}},
		{console.ExitUsage, []string{"--q", q, "--k", k, "--v", k}, []string{"-o FILE.npy"}},
		{console.ExitUsage, []string{"--q", q, "--k", k, "--v", k, "-o", out, "--layers-of", "a,b,c"}, []string{"both"}},
		{console.ExitUsage, []string{"--layers-of", "a,b", "-o", out}, []string{"three files"}},
		{console.ExitUsage, []string{"--q", q, "--k", k, "--v", k, "-o", out, "--phase", "both"}, []string{"prefill or decode"}},
		{console.ExitUsage, []string{"--q", q, "--k", k, "--v", k, "-o", out, "--attn", "nope"}, []string{"there are: dense"}},
		{console.ExitUsage, []string{"--q", q, "--k", k, "--v", k, "-o", out, "--audit", "x.txt"}, []string{"x.txt", ".json or .html"}},
		{console.ExitUsage, []string{"--q", q, "--k", k, "--v", k, "-o", out, "--rows", "-1"}, []string{"--rows -1"}},
		{console.ExitUsage, []string{"--q", q, "--k", k, "--v", k, "-o", out, "--attn", "cis"}, []string{"--phase prefill: cis works in decode only", "--phase decode", "'prefill=NAME decode=cis'"}},
		{console.ExitUsage, []string{"--q", q, "--k", k, "--v", k, "-o", out, "--attn", "decode=streaming"}, []string{"works in decode only"}},
		{console.ExitUsage, []string{"--q", q, "--k", k, "--v", k, "-o", out, "--attn", "anchor", "--phase", "decode"}, []string{"--phase decode: anchor works in prefill only"}},
		{console.ExitFailure, []string{"--q", q, "--k", k, "--v", k, "-o", out, "--rows", "21"}, []string{"--rows 21", "20 positions"}},
		{console.ExitFailure, []string{"--q", q, "--k", short, "--v", short, "-o", out}, []string{short, "[2 19 8]", "same layers, n and d"}},
		{console.ExitFailure, []string{"--q", q, "--k", k, "--v", short, "-o", out}, []string{"want the shape of"}},
		{console.ExitFailure, []string{"--q", q, "--k", odd, "--v", odd, "-o", out}, []string{"4 heads", "multiple"}},
		{console.ExitFailure, []string{"--q", flat, "--k", k, "--v", k, "-o", out}, []string{"[20 8]", "[heads, n, d]"}},
		{console.ExitFailure, []string{"--q", bad, "--k", k, "--v", k, "-o", out}, []string{bad, "not a .npy file"}},
		{console.ExitFailure, []string{"--q", q + "x", "--k", k, "--v", k, "-o", out}, []string{"gollm: --q " + q + "x: no such file or directory, want a .npy file"}},
		{console.ExitFailure, []string{"--layers-of", q + "," + k + "," + k, "--layers-of", odd + "," + odd + "," + odd, "-o", out}, []string{"another shape"}},
	} {
		fails(t, tt.code, tt.words, "", append([]string{"attend"}, tt.args...)...)
	}
	// Dense attention that is named is what is asked for.
	ok(t, "", "attend", "--q", q, "--k", k, "--v", k, "-o", out, "--attn", "prefill=dense decode=cis")
}

// A result that is not all numbers is told, whatever the attention.
func TestAttendTellsOfABrokenResult(t *testing.T) {
	q, k, v := randomArray(1, attendHeads, attendLen, attendDim), randomArray(2, attendKV, attendLen, attendDim), randomArray(3, attendKV, attendLen, attendDim)
	args := func() []string {
		return []string{"attend", "--q", save(t, q), "--k", save(t, k), "--v", save(t, v), "-o", filepath.Join(t.TempDir(), "out.npy")}
	}
	if r := gollm("", args()...); r.Code != console.ExitOK || strings.Contains(r.Errs, "not numbers") {
		t.Errorf("without a broken key: %+v", r)
	}
	k.Data[(attendLen+attendLen-1)*attendDim+1] = float32(math.NaN()) // the last of the second kv head
	const want = "16 of 4800 numbers of the result are not numbers"   // the last row of two heads
	if r := gollm("", args()...); r.Code != console.ExitOK || !strings.Contains(r.Errs, want) {
		t.Errorf("stderr does not tell %q: %+v", want, r)
	}
}

// Scores that are not numbers are told: on stderr, and in an audit's JSON.
func TestAttendTellsOfBrokenScores(t *testing.T) {
	q, k, v := randomArray(1, attendHeads, attendLen, attendDim), randomArray(2, attendKV, attendLen, attendDim), randomArray(3, attendKV, attendLen, attendDim)
	out, audit := filepath.Join(t.TempDir(), "out.npy"), filepath.Join(t.TempDir(), "a.json")
	args := func() []string {
		return []string{"attend", "--attn", "prefill=dense decode=topk(k=9,sink=2,window=5)", "--q", save(t, q), "--k", save(t, k), "--v", save(t, v), "-o", out, "--phase", "decode", "--rows", "3"}
	}
	if r := gollm("", args()...); r.Code != console.ExitOK || strings.Contains(r.Errs, "not a number") {
		t.Errorf("without a broken key: %+v", r)
	}
	k.Data[(attendLen+70)*attendDim+1] = float32(math.NaN()) // of the second kv head
	const want = "6 scores were not a number"                // 3 rows, 2 heads
	if r := gollm("", args()...); r.Code != console.ExitOK || !strings.Contains(r.Errs, want) {
		t.Errorf("stderr does not tell %q: %+v", want, r)
	}
	r := gollm("", append(args(), "--audit", audit)...)
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	if a := clitest.Decode[eval.Audit](t, string(text)); a.NaNScores != 6 || !strings.Contains(r.Errs, want) {
		t.Errorf("the audit counts %d: %q", a.NaNScores, r.Errs)
	}
}

// Layers that a method leaves as they are make a dense result, which is said.
func TestAttendTellsOfADenseResult(t *testing.T) {
	const said = "the result is that of dense attention: "
	q, k, v := save(t, randomArray(1, attendHeads, attendLen, attendDim)), save(t, randomArray(2, attendKV, attendLen, attendDim)), save(t, randomArray(3, attendKV, attendLen, attendDim))
	for spec, want := range map[string]bool{"dense": false, "sketchwalk": true, "etf": true, "streaming(sink=2,window=50)": false, "topk(k=9)": false} {
		r := gollm("", "attend", "--attn", spec, "--q", q, "--k", k, "--v", v, "-o", filepath.Join(t.TempDir(), "out.npy"))
		if r.Code != console.ExitOK || strings.Contains(r.Errs, said) != want {
			t.Errorf("%s: %+v, want it to say %q: %t", spec, r, said, want)
		}
	}
}
