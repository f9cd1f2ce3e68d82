package table

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// all reads the rows of files.
func all(t *testing.T, files []string) []string {
	t.Helper()
	var rows []string
	for _, f := range files {
		for r, err := range Rows(f) {
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, string(r.JSON))
		}
	}
	return rows
}

const published = "../published/testdata/"

// TestParquetIsJSON reads the same rows from JSON lines and from Parquet in parts, with lists,
// objects in them, numbers with and without a point, and what is not there.
func TestParquetIsJSON(t *testing.T) {
	for _, name := range []string{"scbench_kv", "scbench_choice_eng", "scbench_mf"} {
		parts, err := Files(published+"scbench-parquet", name)
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) != 2 || !strings.HasSuffix(parts[1], "test-00001-of-00002.parquet") {
			t.Errorf("%s has the parts %q", name, parts)
		}
		lines, err := Files(published+"scbench", name)
		if err != nil {
			t.Fatal(err)
		}
		got, want := all(t, parts), all(t, lines)
		if len(got) != len(want) {
			t.Fatalf("%s: %d rows, want %d", name, len(got), len(want))
		}
		for i := range want {
			if g, w := canonical(t, got[i]), canonical(t, want[i]); g != w {
				t.Errorf("%s row %d: %s, want %s", name, i, g, w)
			}
		}
	}
}

// canonical sorts the fields of an object, with its numbers as they are written.
func canonical(t *testing.T, object string) string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(object))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a_0.parquet", "a_2.parquet", "a_10.parquet", "b.jsonl", "b.parquet", "c/x.parquet"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{
		"a": {"a_0.parquet", "a_2.parquet", "a_10.parquet"}, "b": {"b.jsonl"}, "c": {"c/x.parquet"},
		"": {"b.parquet", "a_0.parquet", "a_2.parquet", "a_10.parquet"},
	} {
		files, err := Files(dir, name)
		for i := range files {
			files[i], _ = filepath.Rel(dir, files[i])
		}
		if err != nil || !slices.Equal(files, want) {
			t.Errorf("%q: %q, %v, want %q", name, files, err, want)
		}
	}
	if _, err := Files(dir, "d"); err == nil || !strings.Contains(err.Error(), "no data set d") {
		t.Errorf("without files: %v", err)
	}
	if files, err := Files(filepath.Join(dir, "b.jsonl"), "any"); err != nil || len(files) != 1 {
		t.Errorf("a file: %q, %v", files, err)
	}
}

// TestDamagedParquet changes a file byte by byte and cuts it: each is rows or one error.
func TestDamagedParquet(t *testing.T) {
	whole, err := os.ReadFile(published + "scbench-parquet/scbench_mf/test-00000-of-00002.parquet")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	cut, failed := 0, 0
	read := func(b []byte) (failure bool) {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, err := range Rows(path) {
			if err != nil && !strings.HasPrefix(err.Error(), path) {
				t.Fatalf("an error without the file: %v", err)
			}
			failure = failure || err != nil
		}
		return failure
	}
	for at := 0; at < len(whole); at += 37 {
		b := slices.Clone(whole)
		b[at] ^= 1 << (at % 8)
		if read(b) {
			failed++
		}
		if !read(whole[:at]) {
			t.Errorf("a file that ends after %d of %d bytes is read", at, len(whole))
		}
		cut++
	}
	for at := len(whole) / 3; at < len(whole); at++ { // of these the library panics over some
		b := slices.Clone(whole)
		b[at] ^= 1
		read(b)
	}
	if failed < cut/10 {
		t.Errorf("%d of %d files with a bit changed are errors", failed, cut)
	}
}

func TestWrongFiles(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"a.parquet": {"no parquet", "no Parquet file"},
		"a.csv":     {"x", "neither"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		var last error
		for _, last = range Rows(path) {
		}
		if last == nil || !strings.Contains(last.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, last, c.want)
		}
	}
	for _, err := range Rows(dir) {
		if err == nil {
			t.Error("a folder has rows")
		}
	}
}
