package longbench

import (
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// jieba is where the real tables are; without it the tests have small ones.
var jieba = flag.String("jieba", "", "the folder of the Python package jieba 0.42.1, whose tables are then tested too")

// splits is what scripts/jieba-vectors.py wrote: small tables, and what the official
// code makes of texts by them.
type splits struct {
	Dictionary, Start, Trans, Emit string
	Splits                         [][2]json.RawMessage
}

// smallSplitter writes the small tables as the package has them, changed, and loads them.
func smallSplitter(t *testing.T, change func(files map[string]string)) (*Splitter, splits, error) {
	t.Helper()
	b, err := os.ReadFile("testdata/splits.json")
	if err != nil {
		t.Fatal(err)
	}
	var v splits
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{splitterFiles[0]: v.Dictionary, splitterFiles[1]: v.Start, splitterFiles[2]: v.Trans, splitterFiles[3]: v.Emit}
	if change != nil {
		change(files)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := LoadSplitter(dir)
	return s, v, err
}

// TestSplitsAreThoseOfJieba compares 600 texts with what the official code made of
// them.
func TestSplitsAreThoseOfJieba(t *testing.T) {
	s, v, err := smallSplitter(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Known || len(v.Splits) != 600 {
		t.Errorf("known %v, %d texts", s.Known, len(v.Splits))
	}
	for _, one := range v.Splits {
		var text string
		var want []string
		if err := errors.Join(json.Unmarshal(one[0], &text), json.Unmarshal(one[1], &want)); err != nil {
			t.Fatal(err)
		}
		if got := s.Split(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSplitterSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		file, old, new, want string
	}{
		{splitterFiles[0], "C++ 3 n", "C++ n", "dict.txt:"},
		{splitterFiles[0], "C++ 3 n", "C++", "want a word and how often it occurs"},
		{splitterFiles[1], "'E'", "'X'", `prob_start.py: a tag "X"`},
		{splitterFiles[2], "'M': {", "'N': {", `prob_trans.py: a tag "N"`},
		{splitterFiles[3], "'S': {", "S: {", "prob_emit.py: it lacks some of the tags"},
	} {
		_, _, err := smallSplitter(t, func(files map[string]string) {
			if !strings.Contains(files[c.file], c.old) {
				t.Fatalf("%s has no %s", c.file, c.old)
			}
			files[c.file] = strings.Replace(files[c.file], c.old, c.new, 1)
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: error %v, want %s", c.new, c.old, err, c.want)
		}
	}
	if _, err := LoadSplitter(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not the folder of the Python package jieba") {
		t.Errorf("an empty folder: error %v", err)
	}
	if _, _, err := smallSplitter(t, func(files map[string]string) { files[splitterFiles[0]] = "" }); err == nil || !strings.Contains(err.Error(), "no word occurs") {
		t.Errorf("an empty dictionary: error %v", err)
	}
}

// TestLogarithm has numbers whose logarithm math.Log rounds to the other side, with
// what Python's math.log gives.
func TestLogarithm(t *testing.T) {
	for n, want := range map[int64]float64{3: 1.0986122886681098, 14: 2.6390573296152584, 48: 3.871201010907891, 74: 4.30406509320417, 176: 5.170483995038151, 196: 5.278114659230517, 220: 5.393627546352362, 299: 5.700443573390687} {
		if got := logarithm(n); got != want {
			t.Errorf("ln %d: %b, want %b", n, got, want)
		}
	}
	for n := int64(1); n < 1<<40; n = n*3 + 1 {
		if got := logarithm(n); math.Abs(got-math.Log(float64(n))) > 4e-15*max(1, got) {
			t.Errorf("ln %d: %v, want %v", n, got, math.Log(float64(n)))
		}
	}
}

// TestChineseScores scores the data sets that need the words, by hand: with the small
// tables 天地 is a word or two characters, whatever is around it.
func TestChineseScores(t *testing.T) {
	s, _, err := smallSplitter(t, func(files map[string]string) { files[splitterFiles[0]] = "天地 100 n\n日月 100 n\n山水 100 n\n" })
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Words: s}
	for _, c := range []struct {
		set, answer, reference string
		want                   float64
	}{
		{"multifieldqa_zh", "天地，日月。", "天地日月", 1},
		{"multifieldqa_zh", "天地山水", "“天地” 日月！", 0.5},
		{"multifieldqa_zh", "ABC 天地", "abc", 2. / 3},
		{"multifieldqa_zh", "，。", "，。", 0},
		{"dureader", "天地日月", "天地日月", 0.999999995},
		{"vcsum", "天地山水", "天地日月", 0.49999999500000003},
	} {
		d, _ := Find(c.set)
		got, err := d.Grade(c.answer, []string{c.reference}, nil, o)
		if err != nil || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s %q, %q: %v, want %v (%v)", c.set, c.answer, c.reference, got, c.want, err)
		}
	}
}

// TestJieba loads the real tables.
func TestJieba(t *testing.T) {
	if *jieba == "" {
		t.Skip("go test -jieba DIR names the folder of the Python package jieba, whose tables this test reads")
	}
	s, err := LoadSplitter(*jieba)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Known {
		t.Error("the tables are not those of jieba 0.42.1")
	}
	// The words that the package's own page gives for these.
	for text, want := range map[string]string{
		"我来到北京清华大学": "我/来到/北京/清华大学", "他来到了网易杭研大厦": "他/来到/了/网易/杭研/大厦",
	} {
		if got := strings.Join(s.Split(text), "/"); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// FuzzSplit splits any text: all of it is in the words, in order, and no word is empty.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{"天地，日月 C++ 3.14%\r\n", "\xe5\xa4", "", "龘5.5.5%%-é\u3000"} {
		f.Add(text)
	}
	var s *Splitter
	f.Fuzz(func(t *testing.T, text string) {
		if s == nil {
			var err error
			if s, _, err = smallSplitter(t, nil); err != nil {
				t.Fatal(err)
			}
		}
		if words := s.Split(text); strings.Join(words, "") != text || slices.Contains(words, "") {
			t.Errorf("%q became %q", text, words)
		}
	})
}
