package metric

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The expected values are those of the official code: NVIDIA/RULER at c3f5e3b,
// THUDM/LongBench at 2e00731, rouge 1.0.1 and fuzzywuzzy 0.18.0.

// near compares to the last digits of a float64.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12 {
		t.Errorf("%s: got %.17g, want %.17g", what, got, want)
	}
}

// vector is an answer, a reference and a score.
type vector struct {
	answer, reference string
	want              float64
}

func (v vector) check(t *testing.T, score func(answer, reference string) float64) {
	t.Helper()
	a := v.answer
	if len(a) > 60 {
		a = a[:60] + "…"
	}
	near(t, a+" | "+v.reference[:min(60, len(v.reference))], score(v.answer, v.reference), v.want)
}

func TestClean(t *testing.T) {
	if got := Clean("\n\t 12\u000034\r\n"); got != "12\n34" {
		t.Errorf("got %q", got)
	}
}

func TestContains(t *testing.T) {
	for _, c := range []struct {
		answer     string
		references []string
		all, part  float64
	}{
		{" 8090293.", []string{"8090293"}, 1, 1},
		{"The values are 1234567, 7654321 and 1111111", []string{"1234567", "7654321", "1111111", "2222222"}, .75, 1},
		{"abc def", []string{"ABC", "x"}, .5, 1},
		{"The Norman dynasty ruled", []string{"Normans", "norman dynasty", "N"}, 2. / 3, 1},
		{"No", []string{"yes"}, 0, 0},
		{"It was 3,677 people", []string{"3,677 seated"}, 0, 0},
		{"12345", []string{"234"}, 1, 1},
		{"ΟΔΟΣ", []string{"οδος", "ΟΔΟΣ"}, 1, 1},
	} {
		near(t, "all "+c.answer, ContainsAll(c.answer, c.references), c.all)
		near(t, "part "+c.answer, ContainsAny(c.answer, c.references), c.part)
	}
}

func TestLower(t *testing.T) {
	for in, want := range map[string]string{
		"ÀÉ": "àé", "İx": "i̇x", "ΣΑΣ": "σας", "ΑΣ Β": "ας β", "ΑΣΑ": "ασα", "Σ": "σ", "ΑΣ.": "ας.",
	} {
		if got := Lower(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"The  Quick, brown-fox's A.":  "quick brownfoxs",
		"An apple; THE pear & a plum": "apple pear plum",
		"thé a à the_end":             "thé à theend",
		"U.S.A. in the 1990s":         "usa in 1990s",
		"“The” end—a":                 "“ ” end—",
		"A\u00a0B\tthe\nC":            "b c",
	} {
		if got := Normalize(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestF1(t *testing.T) {
	for _, v := range []vector{
		{"The Eiffel Tower, in Paris", "Eiffel Tower", 0.6666666666666666},
		{"yes", "Yes.", 1}, {"a the an", "the", 0}, {"", "x", 0},
		{"to be or not to be", "to be", 0.5}, {"3,677 people", "3,677 seated", 0.5},
		{"unanswerable", "Unanswerable.\n", 1}, {"the the cat cat", "cat dog cat", 0.8},
	} {
		v.check(t, F1)
	}
}

func TestRougeL(t *testing.T) {
	var words []string
	for i := range 1000 {
		words = append(words, strings.Repeat("x", 1+i%7)+string(rune('a'+i%26))+string(rune('A'+i/40)))
	}
	long, shorter := strings.Join(words, " "), strings.Join(words[:980], " ")
	for _, v := range []vector{
		{"The cat sat on the mat.", "The cat was sitting on the mat.", 0.7692307642603551},
		{"the the the cat", "the cat", 0.999999995},
		{"a b c d", "d c b a", 0.24999999500000009},
		{"A b. C d.", "a B. c D.", 0},
		{"Hello world. ", "Hello world.", 0.7999999952000001},
		{"first part. second part", "second part. first part", 0.999999995},
		{"", "anything", 0}, {".", "anything", 0}, {" ", "anything", 0},
		{"w1 w2 w6 w7 w8. w1 w3 w8 w9 w5", "w1 w2 w3 w4 w5", 0.6153846106508877},
		{"John met Mary at 3.5 p.m. in Paris", "Mary met John in Paris at 3.5 p.m.", 0.7999999950000002},
		{"line one\nline two. line three", "line two line three. line one", 0.749999995},
		{long, long, 0}, {shorter, shorter, 0.999999995},
	} {
		v.check(t, func(a, r string) float64 { return done(t)(RougeL(a, r, RougeSteps)) })
	}
	near(t, "no bound", done(t)(RougeL(long, long, 0)), 0.999999995)
	atMost := strings.Join(words[:RougeSteps], " ")
	near(t, "at the bound", done(t)(RougeL(atMost, atMost, RougeSteps)), 0.999999995)
	near(t, "a step more", done(t)(RougeL(atMost+" x", atMost+" x", RougeSteps)), 0)
}

// done is a score that there is.
func done(t *testing.T) func(float64, error) float64 {
	return func(x float64, err error) float64 {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return x
	}
}

// wholeTable is the definition of commonWords.mark: the whole table is kept.
func wholeTable(marked []bool, x, y []int32, most int) bool {
	table := make([][]int32, len(x)+1)
	for i := range table {
		table[i] = make([]int32, len(y)+1)
		for j := range y {
			switch {
			case i == 0:
			case x[i-1] == y[j]:
				table[i][j+1] = table[i-1][j] + 1
			default:
				table[i][j+1] = max(table[i-1][j+1], table[i][j])
			}
		}
	}
	for i, j, steps := len(x), len(y), 0; i > 0 && j > 0; steps++ {
		switch {
		case most > 0 && steps >= most:
			return false
		case x[i-1] == y[j-1]:
			marked[x[i-1]] = true
			i, j = i-1, j-1
		case table[i-1][j] > table[i][j-1]:
			i--
		default:
			j--
		}
	}
	return true
}

// TestCommonWordsInBlocks holds tables of which few rows are kept against whole
// ones.
func TestCommonWordsInBlocks(t *testing.T) {
	const words = 12
	r := rand.New(rand.NewPCG(1, 7))
	sentence := func(n int) []int32 {
		s := make([]int32, n)
		for i := range s {
			s[i] = int32(r.IntN(words))
		}
		return s
	}
	blocks := commonWords{cells: 0}
	for round := range 2000 {
		x, y, most := sentence(1+r.IntN(40)), sentence(1+r.IntN(40)), r.IntN(60)
		want := make([]bool, words)
		blocks.marked = make([]bool, words)
		blocks.cells = round % 2 * r.IntN(1600)
		if got, ok := blocks.mark(x, y, most), wholeTable(want, x, y, most); got != ok || !slices.Equal(blocks.marked, want) {
			t.Fatalf("%v and %v, %d steps: %v %v, want %v %v", x, y, most, got, blocks.marked, ok, want)
		}
	}
}

func TestClassify(t *testing.T) {
	trec := []string{"Food", "Animal", "Disease and medicine", "Disease", "Other location", "City", "Country", "Number of something", "Other number"}
	for _, c := range []struct {
		vector
		classes []string
	}{
		{vector{"Type: City", "City", 1}, trec},
		{vector{"City or Country", "City", 0.5}, trec},
		{vector{"Disease and medicine", "Disease and medicine", 1}, trec},
		{vector{"Disease", "Disease and medicine", 0}, trec},
		{vector{"Disease and medicine", "Disease", 0.5}, trec},
		{vector{"city", "City", 0}, trec},
		{vector{"abc", "abc", 0.5}, []string{"a", "ab", "abc"}},
		{vector{"abc", "abc", 0.3333333333333333}, []string{"a", "b", "c", "ab", "bc", "abc"}},
	} {
		c.check(t, func(a, r string) float64 { return Classify(a, r, c.classes) })
	}
}

func TestRetrieveAndCount(t *testing.T) {
	for _, v := range []vector{
		{"Paragraph 12", "Paragraph 12", 1}, {"The answer is 12, or 13", "Paragraph 12", 0.5},
		{"12 12 5", "Paragraph 12", 0.6666666666666666}, {"none", "Paragraph 12", 0},
		{"Paragraph 012", "Paragraph 12", 0}, {"１２ 12", "Paragraph 12", 0.5},
		{"Paragraph 1 of 12", "Paragraph 1", 0.5}, {"段落3或段落4", "段落3", 0.5}, {"3", "no number", 0},
	} {
		v.check(t, Retrieve)
	}
	for _, v := range []vector{
		{"7", "7", 1}, {"There are 7 unique out of 12", "7", 0.5}, {"7.0", "7", 0.5},
		{"seven", "7", 0}, {"17", "7", 0}, {"007 7", "7", 0.5},
	} {
		v.check(t, Count)
	}
}

func TestCodeSimilarity(t *testing.T) {
	for _, c := range []struct {
		vector
		levenshtein float64
	}{
		{vector{"return x + 1", "return x + 1", 1}, 1},
		{vector{"\n\n    return x", "        return x", 0.86}, -1},
		{vector{"```python\nfoo(bar)", "foo(baz)", 0.88}, -1},
		{vector{"# comment\nx = 1", "x = 1", 1}, 1},
		{vector{"x = 1 # set", "x = 1", 0}, 0},
		{vector{"\nint a = b; // c\nint a = b;", "int a = b;", 1}, 1},
		{vector{"  \nfoo", "foo", 0}, -1},
		{vector{"", "x", 0}, 0}, {vector{"", "", 1}, 1},
		{vector{"abc", "cadb", 0.57}, 0.57}, {vector{"cadb", "abc", 0.29}, 0.57},
		{vector{"A L I E N S", "A S A L", 0.33}, 0.44},
		{vector{"if (x == null) return;", "if (x != null) return y;", 0.91}, 0.91},
		{vector{"return self._cache.get(key)", "return self.cache[key]", 0.82}, 0.82},
		{vector{strings.Repeat("a", 200) + "b", strings.Repeat("a", 250), 0.89}, -1},
	} {
		c.check(t, func(a, r string) float64 { return done(t)(CodeSimilarity(a, r, Difflib)) })
		if c.levenshtein >= 0 {
			near(t, "levenshtein "+c.answer, done(t)(CodeSimilarity(c.answer, c.reference, Levenshtein)), c.levenshtein)
		}
	}
}

// plainMatches is the definition of matcher.count, as Python's documentation has
// it, for texts without popular characters.
func plainMatches(a, b []rune) int {
	besti, bestj, best := 0, 0, 0
	for i := range a {
		for j := range b {
			n := 0
			for i+n < len(a) && j+n < len(b) && a[i+n] == b[j+n] {
				n++
			}
			if n > best {
				besti, bestj, best = i, j, n
			}
		}
	}
	if best == 0 {
		return 0
	}
	return best + plainMatches(a[:besti], b[:bestj]) + plainMatches(a[besti+best:], b[bestj+best:])
}

func TestMatcherAgainstDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	text := func(n int) []rune {
		s := make([]rune, n)
		for i := range s {
			s[i] = rune('a' + r.IntN(5))
		}
		return s
	}
	for range 2000 {
		a, b := text(r.IntN(50)), text(r.IntN(50))
		m := newMatcher(a, b)
		if got, want := m.count(0, len(a), 0, len(b)), plainMatches(a, b); got != want {
			t.Fatalf("%q and %q: %d, want %d", string(a), string(b), got, want)
		}
	}
}

func TestSplitMix(t *testing.T) {
	s := splitMix(42)
	for _, want := range []uint64{13679457532755275413, 2949826092126892291} {
		if got := s.next(); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

func TestBootstrap(t *testing.T) {
	var ones []float64
	for i := range 100 {
		if i < 62 {
			ones = append(ones, 1)
		} else {
			ones = append(ones, 0)
		}
	}
	iv := Bootstrap(ones, Draws, 42)
	near(t, "low", iv.Low, 0.52)
	near(t, "high", iv.High, 0.72)
	near(t, "mean", iv.Mean, 0.62)
	iv = Bootstrap([]float64{1, .75, 1, .5, 1, 1, .25, 1, 0, 1}, Draws, 42)
	near(t, "low", iv.Low, 0.5)
	near(t, "high", iv.High, 0.95)
	if iv := Bootstrap(nil, Draws, 1); iv != (Interval{}) {
		t.Errorf("of nothing: %+v", iv)
	}
	two := BootstrapMean([][]float64{{1, 1, 1}, {0}, nil}, 100, 1)
	near(t, "mean of tasks", two.Mean, 0.5)
	near(t, "tasks that do not vary", two.High-two.Low, 0)
}

func TestCompare(t *testing.T) {
	a := []float64{1, 1, 1, 0, 0, 1, 1, 1}
	b := []float64{1, 0, 0, 0, 1, 0, 0, 0}
	p := Compare(a, b, 1000, 1)
	if p.Win != 1 || p.Loss != 5 || p.Tie != 2 || !p.Binary {
		t.Errorf("%+v", p)
	}
	near(t, "difference", p.Difference.Mean, -0.5)
	if want := 2 * 7.0 / 64; math.Abs(p.McNemar-want) > 1e-9 {
		t.Errorf("McNemar %g, want %g", p.McNemar, want)
	}
	if p := Compare([]float64{.5, 1}, []float64{1, 1}, 10, 1); p.Binary || p.McNemar != 1 {
		t.Errorf("%+v", p)
	}
}

func TestRound(t *testing.T) {
	for in, want := range map[float64]float64{66.66666666666667: 66.67, 2.675: 2.67, 0.125: 0.12, 87.5: 87.5} {
		if got := Round(in, 2); got != want {
			t.Errorf("%v: got %v, want %v", in, got, want)
		}
	}
}
