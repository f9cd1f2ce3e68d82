package ruler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// generate makes rows of a task with the toy tokenizer and our own wording.
func generate(t *testing.T, name string, length, n int, change func(*Options)) (*Generator, []Row) {
	t.Helper()
	task, err := FindTask(name)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Task: task, Length: length, Seed: 42, Count: words, Text: Filler(1, 30000)}
	if change != nil {
		change(&o)
	}
	g, err := NewGenerator(o)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]Row, n)
	for i := range rows {
		if rows[i], err = g.Next(); err != nil {
			t.Fatal(err)
		}
	}
	return g, rows
}

// TestReleasedRow makes the row of the released test file of the first era: the
// generator tried 5, 10 and 15 lines and took 10.
func TestReleasedRow(t *testing.T) {
	task, _ := FindTask("niah_multikey_3")
	g := &Generator{o: Options{Task: task, Seed: 42, Wording: Native}, rng: newRandom(42), text: "{context}\n{query}"}
	m := &needleMaker{g: g}
	var p prompt
	for _, n := range []int{5, 10, 15, 10} {
		var err error
		if p, _, err = m.make(n); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(p.text, "\n")
	if len(lines) != 12 || lines[11] != "f264accc-79ac-4b1e-a8e5-6e0c20de435d" {
		t.Fatalf("%d lines, asked for %s", len(lines), lines[len(lines)-1])
	}
	if want := "8715a103-43da-4043-aa45-c2ab8cbfedb0"; p.answers[0] != want || !strings.Contains(lines[1], want) {
		t.Errorf("answer %s, line 1 %s", p.answers[0], lines[1])
	}
}

// TestAnsweringRank holds the rank of the answering document, which the official
// generator gives the same in every row.
func TestAnsweringRank(t *testing.T) {
	for n, want := range map[int]int{10: 8, 20: 18, 50: 19, 100: 70, 200: 55, 500: 308, 1000: 782} {
		docs := make([]int, n)
		docs[0] = 1
		shuffle(newRandom(42), docs)
		if got := slices.Index(docs, 1); got != want {
			t.Errorf("of %d documents: rank %d, want %d", n, got, want)
		}
	}
}

// chiSquare is that of counts against a uniform law.
func chiSquare(counts []int) float64 {
	total, sum := 0, 0.0
	for _, c := range counts {
		total += c
	}
	want := float64(total) / float64(len(counts))
	for _, c := range counts {
		sum += (float64(c) - want) * (float64(c) - want) / want
	}
	return sum
}

// tenth is the 99.9 % point of chi square with nine degrees of freedom.
const tenth = 27.88

func TestNeedlesAreAnywhere(t *testing.T) {
	g, rows := generate(t, "niah_single_1", 1024, 1000, nil)
	places, first := make([]int, 10), make([]int, 10)
	for _, r := range rows {
		lines := strings.Split(strings.SplitN(r.Input, "\n", 2)[1], "\n")
		at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, r.Outputs[0]) })
		if at < 0 || at >= g.Units() {
			t.Fatalf("the needle is in line %d of %d", at, g.Units())
		}
		places[at*10/g.Units()]++
		first[(int(r.Outputs[0][0]-'1')*100+int(r.Outputs[0][1]-'0')*10+int(r.Outputs[0][2]-'0'))/90]++
		if r.Length > 1024 || r.Length != words(r.Prompt())+128 {
			t.Fatalf("length %d", r.Length)
		}
	}
	even := make([]int, 10)
	for i := range g.Units() {
		even[i*10/g.Units()]++
	}
	for i := range places { // tenths have 4 or 5 of the lines
		places[i] = places[i] * 60 / even[i]
	}
	if x := chiSquare(places) / (60 * 10 / float64(g.Units())); x > tenth {
		t.Errorf("places of needles %v: chi square %.1f", places, x)
	}
	if x := chiSquare(first); x > tenth {
		t.Errorf("first digits of values %v: chi square %.1f", first, x)
	}
}

// TestNeedlesInEssays checks that all needles are there, at depths of the grid, in
// the one order that the seed gives, and that answers are in the order of the
// question.
func TestNeedlesInEssays(t *testing.T) {
	_, rows := generate(t, "niah_multivalue", 2048, 30, nil)
	for _, r := range rows {
		var order []int
		for _, v := range r.Outputs {
			order = append(order, strings.Index(r.Input, v))
		}
		// needles are shuffled to 2 1 3 0
		if !(order[2] < order[1] && order[1] < order[3] && order[3] < order[0]) || order[2] < 0 {
			t.Fatalf("values at %v", order)
		}
	}
	_, rows = generate(t, "niah_multiquery", 2048, 30, nil)
	for _, r := range rows {
		query := strings.NewReplacer(", and ", ", ").Replace(r.AnswerPrefix[strings.Index(r.AnswerPrefix, " for ")+5 : strings.Index(r.AnswerPrefix, " in the text")])
		for i, key := range strings.Split(query, ", ") {
			if !strings.Contains(r.Input, fmt.Sprintf("for %s is: %s.", key, r.Outputs[i])) {
				t.Fatalf("key %d, %s, has not the value %s", i, key, r.Outputs[i])
			}
		}
	}
}

func TestChains(t *testing.T) {
	_, rows := generate(t, "vt", 1024, 50, nil)
	examples := map[string]bool{}
	for _, r := range rows {
		example, task, _ := strings.Cut(r.Input[10:], Native.Text[Chain].Template[:10])
		examples[example[strings.LastIndex(example, ":")+1:]] = true
		last := -1
		for i, name := range r.Outputs {
			value := strings.Fields(r.AnswerPrefix[strings.Index(r.AnswerPrefix, "the value ")+10:])[0]
			line := "VAR " + name + " = " + strings.TrimSuffix(value, ",")
			if i > 0 {
				line = "VAR " + name + " = VAR " + r.Outputs[i-1] + " "
			}
			at := strings.Index(task, line+"\n")
			if at <= last {
				t.Fatalf("%q at %d, after %d", line, at, last)
			}
			last = at
		}
	}
	if len(examples) < 49 {
		t.Errorf("%d examples in 50 rows, want another in each", len(examples))
	}
}

func TestListsHaveTheirCounts(t *testing.T) {
	for length, counts := range map[int][2]int{1024: {6, 1}, 4096: {30, 3}} {
		_, rows := generate(t, "cwe", length, 3, nil)
		for _, r := range rows {
			list := strings.Fields(r.Input[strings.LastIndex(r.Input, "most.\n")+6 : strings.LastIndex(r.Input, "\nQuestion")])
			count := map[string]int{}
			for i, w := range list {
				if i%2 == 1 {
					count[w]++
				} else if w != fmt.Sprintf("%d.", i/2+1) {
					continue // a word of two parts shifts what follows
				}
			}
			if count[r.Outputs[3]] > counts[0] {
				t.Errorf("%d tokens: a common word comes %d times, want %d", length, count[r.Outputs[3]], counts[0])
			}
			for _, w := range r.Outputs {
				if n := strings.Count(r.Input[strings.LastIndex(r.Input, "most.\n"):], ". "+w+" "); n < counts[0]-1 {
					t.Errorf("%d tokens: %s comes %d times, want %d", length, w, n, counts[0])
				}
			}
		}
	}
}

func TestFrequenciesFollowTheLaw(t *testing.T) {
	g, rows := generate(t, "fwe", 4096, 3, nil)
	for _, r := range rows {
		count := map[string]int{}
		for _, w := range strings.Fields(r.Input) {
			count[w]++
		}
		for k, w := range append([]string{"..."}, r.Outputs...) {
			want := int(float64(g.Units()) / math.Pow(float64(k+1), 2) / zetaOf2)
			if count[w] != want {
				t.Errorf("rank %d comes %d times, want %d", k+1, count[w], want)
			}
		}
	}
}

// TestFineFits checks that a fine fit leaves less room than one more unit takes,
// and that it makes what the official steps cannot.
func TestFineFits(t *testing.T) {
	for _, name := range TaskNames() {
		task, _ := FindTask(name)
		if task.Kind == Question {
			continue
		}
		g, rows := generate(t, name, 1024, 5, func(o *Options) { o.Fine = true })
		for _, r := range rows {
			if r.Length > 1024 || r.Length < 1024-60 {
				t.Errorf("%s: length %d with %d units", name, r.Length, g.Units())
			}
		}
	}
	task, _ := FindTask("niah_single_2")
	o := Options{Task: task, Length: 600, Seed: 1, Count: words, Text: Filler(1, 3000)}
	g, err := NewGenerator(o)
	if err == nil {
		_, err = g.Next()
	}
	if err == nil || !strings.Contains(err.Error(), "does not fit 600 tokens") || !strings.Contains(err.Error(), "--fit fine") {
		t.Errorf("error %v, want one that says what does not fit", err)
	}
}

// TestMisfitNamesTheLengthThatWasAskedFor asks every task for what nothing fits: the
// error is about that length and the whole prompt, and with as many tokens as it says
// the smallest prompt has there is a row.
func TestMisfitNamesTheLengthThatWasAskedFor(t *testing.T) {
	for _, name := range []string{"niah_single_1", "niah_multikey_2", "vt", "cwe"} {
		for _, fine := range []bool{true, false} {
			task, _ := FindTask(name)
			o := Options{Task: task, Length: 10, Seed: 1, Count: words, Fine: fine}
			make := func() (r Row, err error) {
				g, err := NewGenerator(o)
				if err == nil {
					r, err = g.Next()
				}
				return r, err
			}
			_, err := make()
			misfit := new(MisfitError)
			if !errors.As(err, &misfit) || misfit.Length != 10 || !strings.Contains(err.Error(), "does not fit 10 tokens") {
				t.Errorf("%s, fine %v: error %v, want one about 10 tokens", name, fine, err)
				continue
			}
			if o.Length = misfit.Least; fine && name == "vt" {
				o.Length *= 2 // half of it may be the worked example
			}
			if r, err := make(); err != nil || r.Length > o.Length {
				t.Errorf("%s, fine %v: a row of %d tokens, %v, where the smallest has %d", name, fine, r.Length, err, misfit.Least)
			}
		}
	}
}

func TestSameSeedSameRows(t *testing.T) {
	for _, name := range []string{"niah_multikey_2", "niah_multivalue", "vt", "cwe", "fwe"} {
		_, a := generate(t, name, 1024, 3, nil)
		_, b := generate(t, name, 1024, 3, nil)
		_, c := generate(t, name, 1024, 3, func(o *Options) { o.Seed = 43 })
		for i := range a {
			if a[i].Prompt() != b[i].Prompt() || a[i].Prompt() == c[i].Prompt() {
				t.Errorf("%s: rows of equal seeds differ, or of different seeds do not", name)
			}
		}
	}
}

// TestSplit checks that the offset of the question is where it begins.
func TestSplit(t *testing.T) {
	for _, w := range []*Wording{Native, masked} {
		for _, name := range TaskNames() {
			task, _ := FindTask(name)
			if task.Kind == Question {
				continue // needs a file: see TestSplitOfQuestions
			}
			_, rows := generate(t, name, 2048, 2, func(o *Options) { o.Wording, o.Template = w, "<user>{t}<end>" })
			for _, r := range rows {
				at, ok := r.Split(task, w)
				if !ok || at < len(r.Input)/2 || strings.Count(r.Input[at:], "\n") != 0 {
					t.Errorf("%s %s: the question is %q", w.Name, name, r.Input[at:])
				}
				if unnamed, ok := r.Split(task, nil); w == Native && (!ok || unnamed != at || !strings.HasPrefix(r.Input[at:], "Question: ")) {
					t.Errorf("%s: the question begins with %q, or at %d", name, r.Input[at:], unnamed)
				}
				r.SplitChar = 7
				if at, ok := r.Split(task, w); !ok || at != 7 {
					t.Errorf("%s %s: split_char of an older file is not used: %d", w.Name, name, at)
				}
			}
		}
	}
}

func TestSplitOfQuestions(t *testing.T) {
	task, _ := FindTask("qa_1")
	c, err := readCorpus(task, strings.NewReader(toySquad()))
	if err != nil {
		t.Fatal(err)
	}
	_, rows := generate(t, "qa_1", 400, 2, func(o *Options) { o.Corpus = c })
	for _, r := range rows {
		at, ok := r.Split(task, nil)
		if named, _ := r.Split(task, Native); !ok || at != named || !strings.HasPrefix(r.Input[at:], "Answer the question from the documents above.") {
			t.Errorf("the question begins with %q", r.Input[at:])
		}
	}
}

func TestGeneratorErrors(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no text":   func(o *Options) { o.Text = " \n" },
		"no length": func(o *Options) { o.Length = 0 },
		"too long":  func(o *Options) { o.Length = 1 << 40 },
		"template":  func(o *Options) { o.Template = "no slot" },
		"no corpus": func(o *Options) { o.Task, _ = FindTask("qa_1") },
		"tiny fwe":  func(o *Options) { o.Task, _ = FindTask("fwe"); o.Length = 200 },
	} {
		task, _ := FindTask("niah_single_2")
		o := Options{Task: task, Length: 2048, Seed: 42, Count: words, Text: "a b c."}
		change(&o)
		if _, err := NewGenerator(o); err == nil || !strings.HasPrefix(err.Error(), "ruler: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestRowsReadBack(t *testing.T) {
	task, _ := FindTask("niah_single_2")
	_, rows := generate(t, "niah_single_2", 1024, 3, func(o *Options) {
		o.Fine, o.Text = true, "Émile paid 5 € and \"left\" \\ for 東京 🚆.\tThen\u2028he slept. "+Filler(1, 3000)
	})
	var b bytes.Buffer
	for i := range rows {
		if err := WriteRow(&b, task, &rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if strings.IndexFunc(b.String(), func(c rune) bool { return c > 126 }) >= 0 {
		t.Error("the file is not ASCII")
	}
	in := NewReader("x.jsonl", &b)
	for i := range rows {
		r, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if r.Prompt() != rows[i].Prompt() || !slices.Equal(r.Outputs, rows[i].Outputs) || r.Index != rows[i].Index ||
			r.AnswerToken != rows[i].AnswerToken || r.Length != rows[i].Length {
			t.Errorf("row %d came back as another", i)
		}
		if want := utf8.RuneCountInString(r.Input[:strings.Index(r.Input, r.Outputs[0])]); r.Index != want {
			t.Errorf("index %d, want %d, where the answer is", r.Index, want)
		}
	}
	if in.Era() != E2 {
		t.Errorf("era %s", in.Era())
	}
}

func TestReaderKnowsEras(t *testing.T) {
	e1 := `{"index": 0, "input": "text. The special magic number is", "outputs": ["1"], "length": 9}`
	e3 := `{"index": 999, "input": "text.", "outputs": ["1"], "length": 9, "length_w_model_temp": 9, "answer_prefix": " The special magic number is", "token_position_answer": 2, "mine": {"a": 1}}`
	for _, c := range []struct {
		text string
		era  Era
	}{{e1, E1}, {e3, E2}, {e1 + "\r\n\n", E1}} {
		in := NewReader("x.jsonl", strings.NewReader(c.text))
		r, err := in.Next()
		if err != nil || in.Era() != c.era || r.Prompt() != "text. The special magic number is" {
			t.Errorf("%s: %v, %q, %v", c.text, in.Era(), r.Prompt(), err)
		}
	}
	in := NewReader("x.jsonl", strings.NewReader(e1+"\n"+e3))
	if _, err := in.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Next(); err == nil || !strings.Contains(err.Error(), "x.jsonl:2: a row of era E2/E3 in a file of era E1") {
		t.Errorf("error %v, want one that names the eras", err)
	}
	r, err := ParseRow([]byte(e3))
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Predict("42", -1); string(p.Others) != `{"mine":{"a":1}}` || p.Input != r.Prompt() {
		t.Errorf("%+v", p)
	}
	if p := r.Predict("42", 3); p.Input != "tex" {
		t.Errorf("input %q, want its first three bytes", p.Input)
	}
	if r, err := ParseRow([]byte(`{"input": "a", "output": "b"}`)); err != nil || !slices.Equal(r.Outputs, []string{"b"}) {
		t.Errorf("%v, %v", r.Outputs, err)
	}
}

func TestReaderSaysWhereDataIsWrong(t *testing.T) {
	good := `{"index": 0, "input": "a", "outputs": ["b"], "length": 1}` + "\n"
	for bad, want := range map[string]string{
		good + `{"outputs": ["b"]}`:                             "x.jsonl:2: no field input",
		good + `{"input": " ", "outputs": ["b"]}`:               "x.jsonl:2: field input is empty",
		good + `{"input": "a", "outputs": ["b"], "length": -1}`: "x.jsonl:2: field length: -1",
		good + `{"input": "a"}`:                                 "x.jsonl:2: no field outputs",
		good + `{"input": "a", "outputs": []}`:                  "x.jsonl:2: no field outputs",
		good + `{"input": "a", "outp`:                           "x.jsonl:2: the line ends after",
		good + `{"input": null, "outputs": ["b"]}`:              "x.jsonl:2: field input: null",
		good + `{"input": "a", "outputs": "b"}`:                 "x.jsonl:2: field outputs",
		good + "\n" + `[1]`:                                     "x.jsonl:3: ",
		good + `null`:                                           "x.jsonl:2: ",
		good + good + `{"input": 3, "outputs": ["b"]}}`:         "x.jsonl:3: ",
	} {
		in := NewReader("x.jsonl", strings.NewReader(bad))
		var err error
		for err == nil {
			_, err = in.Next()
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", bad, err, want)
		}
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("needle and hay ", 1<<17)
	line, err := json.Marshal(map[string]any{"input": long, "outputs": []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	in := NewReader("x.jsonl", bytes.NewReader(append(append(line, '\n'), line...)))
	for range 2 {
		if r, err := in.Next(); err != nil || r.Input != long {
			t.Fatal("a line of two megabytes was not read: ", err)
		}
	}
}

func TestParseWords(t *testing.T) {
	for text, want := range map[string]string{
		`{"0": "b", "1": "a"}`: "b a", `["x", "y"]`: "x y", "one\ntwo\n": "one two",
	} {
		got, err := ParseWords([]byte(text))
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "{", `{"a": `, "[1]", "version https://git-lfs.github.com/spec/v1\noid x"} {
		if w, err := ParseWords([]byte(bad)); err == nil {
			t.Errorf("%q gave %v", bad, w)
		}
	}
}

func TestHotpot(t *testing.T) {
	task, _ := FindTask("qa_2")
	var items []string
	for i := range 8 {
		items = append(items, fmt.Sprintf(`{"_id": "%d", "question": "Q%d?", "answer": "A%d", "type": "bridge", "context": [["T%d", ["One.", " Two."]], ["U%d", ["Three."]]]}`, i, i, i, i, i))
	}
	c, err := readCorpus(task, strings.NewReader("["+strings.Join(items, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Docs) != 16 || c.Docs[0] != "T0\nOne. Two." || len(c.Questions[3].Gold) != 2 {
		t.Fatalf("%d documents, the first %q", len(c.Docs), c.Docs[0])
	}
	g, err := NewGenerator(Options{Task: task, Length: 160, Seed: 42, Count: words, Corpus: c, Fine: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		r, err := g.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.Input, fmt.Sprintf("T%d\nOne. Two.", i)) || r.Outputs[0] != fmt.Sprintf("A%d", i) {
			t.Errorf("row %d lacks its documents", i)
		}
	}
	if _, err := g.Next(); err == nil || !strings.Contains(err.Error(), "has 8 questions") {
		t.Errorf("error %v, want one that says that questions ran out", err)
	}
	if _, err := readCorpus(task, strings.NewReader(`[{"context": [[1, 2]]}]`)); err == nil {
		t.Error("a context of numbers was read")
	}
}

func TestPickTasks(t *testing.T) {
	for list, want := range map[string]int{"all": 13, "offline": 6, "vt,cwe": 2, "offline, vt,niah_single_2": 7} {
		if got, err := PickTasks(list); err != nil || len(got) != want {
			t.Errorf("%s: %d tasks, want %d (%v)", list, len(got), want, err)
		}
	}
	if _, err := PickTasks("vt,nope"); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("error %v", err)
	}
}

// BenchmarkGenerate makes a prompt of 128k tokens of Llama 3, the search of its
// size included.
func BenchmarkGenerate(b *testing.B) {
	count := llamaCount(b)
	for _, name := range []string{"niah_single_1", "niah_single_2", "niah_multikey_3", "vt", "cwe", "fwe"} {
		task, _ := FindTask(name)
		b.Run("task="+name+"/len=131072", func(b *testing.B) {
			text := Filler(1, 200000)
			for b.Loop() {
				g, err := NewGenerator(Options{Task: task, Length: 131072, Seed: 42, Count: count, Text: text, Template: llamaTemplate})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := g.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
