package longbench

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// checkout is where the official prompts are; without it the tests make their own.
var checkout = flag.String("longbench", "", "a checkout of THUDM/LongBench, whose prompts are then tested too")

// file makes a file of answers.
func file(t *testing.T, preds []string, refs [][]string, classes []string, lengths []int) string {
	t.Helper()
	var b strings.Builder
	for i, p := range preds {
		row := Prediction{Pred: p, Answers: refs[i], AllClasses: classes}
		if lengths != nil {
			row.Length = lengths[i]
		}
		line, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

// TestScoreFile holds scores against those of the official eval.py.
func TestScoreFile(t *testing.T) {
	for _, c := range []struct {
		name    string
		preds   []string
		refs    [][]string
		classes []string
		want    float64
	}{
		{"trec", []string{"\n\nType: City\nfoo Country"}, [][]string{{"City"}}, []string{"City", "Country"}, 100},
		{"samsum", []string{"one two\nthree"}, [][]string{{"one two"}}, nil, 100},
		{"qasper", []string{"yes\nblah", "no"}, [][]string{{"yes", "Yes it is"}, {"unanswerable"}}, nil, 33.33},
		{"hotpotqa", []string{"Paris, France", "x"}, [][]string{{"Paris"}, {"x", "y"}}, nil, 83.33},
	} {
		d, err := Find(c.name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ScoreFile("p.jsonl", strings.NewReader(file(t, c.preds, c.refs, c.classes, nil)), d, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Score != c.want {
			t.Errorf("%s: %v, want %v", c.name, s.Score, c.want)
		}
	}
}

// TestNullsAreCounted has answers without text: those of white space are none either.
func TestNullsAreCounted(t *testing.T) {
	d, _ := Find("qasper")
	s, err := ScoreFile("p.jsonl", strings.NewReader(file(t, []string{"", " \n\t", "no", "\u3000"}, [][]string{{"no"}, {"no"}, {"no"}, {"no"}}, nil, nil)), d, Options{})
	if err != nil || s.Nulls != 3 {
		t.Errorf("%d nulls, want 3 (%v)", s.Nulls, err)
	}
}

// TestGradeLineIsScoreFile grades the lines of files one by one.
func TestGradeLineIsScoreFile(t *testing.T) {
	d, _ := Find("qasper")
	text := file(t, []string{"no", "", "yes and no"}, [][]string{{"no"}, {"no"}, {"no", "yes"}}, nil, []int{100, 4000, 8000})
	s, err := ScoreFile("p.jsonl", strings.NewReader(text), d, Options{E: true})
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for line := range strings.Lines(text) {
		g, err := d.GradeLine([]byte(line), Options{E: true})
		if err != nil || *g.Score != s.Samples[i] || g.Bucket != Buckets[i] || g.Null != (i == 1) {
			t.Errorf("line %d: %+v, want the score %v (%v)", i, g, s.Samples[i], err)
		}
		i++
	}
	chinese, _ := Find("dureader")
	if g, err := chinese.GradeLine([]byte(`{"pred": "a", "answers": ["a"]}`), Options{}); err != nil || g.Score != nil {
		t.Errorf("%+v, %v: want no score of what cannot be scored", g, err)
	}
	for bad, want := range map[string]string{
		`{"answer": "A", "difficulty": "easy", "length": "long"}`:                    "no field response",
		`{"answer": "E", "difficulty": "easy", "length": "long", "response": ""}`:    `the answer is "E"`,
		`{"answer": "A", "difficulty": "", "length": "long", "response": ""}`:        `the field difficulty is ""`,
		`{"answer": "A", "difficulty": "easy", "length": "long", "response": ["A"]}`: "field response is of type array",
		`{"answer": "A", "difficulty": "easy", "length": "long", "response": "A"`:    "the line ends",
	} {
		if _, err := GradeItem([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", bad, err, want)
		}
	}
}

func TestBuckets(t *testing.T) {
	d, _ := Find("passage_count")
	refs := [][]string{{"3"}, {"5"}, {"5"}, {"7"}, {"1"}}
	s, err := ScoreFile("p.jsonl", strings.NewReader(file(t, []string{"3", "4", "5", "7 8", "9"}, refs, nil, []int{100, 3999, 4000, 7999, 8000})), d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.ByLength(), [3]float64{50, 75, 0}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	empty := Scored{Samples: []float64{1}, Lengths: []int{9000}}
	if got := empty.ByLength(); !math.IsNaN(got[0]) || got[2] != 100 {
		t.Errorf("got %v, want NaN where there are no samples", got)
	}
}

func TestPairwise(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 127, 128, 129, 300, 1000} {
		x := make([]float64, n)
		sum := 0.0
		for i := range x {
			x[i] = float64(i)
			sum += x[i]
		}
		if got := pairwise(x); got != sum {
			t.Errorf("%d numbers: %v, want %v", n, got, sum)
		}
	}
}

func TestScoreFileSaysWhereDataIsWrong(t *testing.T) {
	good := `{"pred": "a", "answers": ["a"], "all_classes": null, "length": 5}` + "\n"
	d, _ := Find("qasper")
	for bad, want := range map[string]string{
		good + `{"answers": ["a"]}`:                            "p.jsonl:2: no field pred",
		good + `{"pred": "a"}`:                                 "p.jsonl:2: no field answers",
		good + `{"pred": "a", "answers": [`:                    "p.jsonl:2: the line ends",
		good + `{"pred": 3, "answers": [""]}`:                  "p.jsonl:2: field pred is of type number, want string",
		good + `{"pred": "", "answers": [null]}`:               "p.jsonl:2: not a JSON object of the right form: want a list of strings, found [null]",
		good + `{"pred": "a", "answers": []}`:                  "p.jsonl:2: no field answers",
		good + `{"pred": "a", "answers": ["a"], "length": -5}`: "p.jsonl:2: the field length is -5",
		good + `{"PRED": "a", "answers": ["a"]}`:               "p.jsonl:2: not a JSON object of the right form: field PRED, want pred",
		"\n":                                                   "p.jsonl has no answers",
	} {
		if _, err := ScoreFile("p.jsonl", strings.NewReader(bad), d, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", bad, err, want)
		}
	}
	trec, _ := Find("trec")
	if _, err := ScoreFile("p.jsonl", strings.NewReader(good), trec, Options{}); err == nil || !strings.Contains(err.Error(), "p.jsonl:1: no field all_classes") {
		t.Errorf("trec without classes: error %v, want one that names line 1 and the field", err)
	}
	chinese, _ := Find("dureader")
	if _, err := ScoreFile("p.jsonl", strings.NewReader(good), chinese, Options{}); err == nil {
		t.Error("dureader was scored without a splitter of words")
	}
}

// TestLongBenchEWantsLengths takes the length out of the second row, which without it
// would count as one of 0 to 4k.
func TestLongBenchEWantsLengths(t *testing.T) {
	d, _ := Find("qasper")
	good := `{"pred": "a", "input": "q", "context": "c", "answers": ["a"], "all_classes": null, "length": 0}` + "\n"
	for _, bad := range []string{strings.Replace(good, `, "length": 0`, ``, 1), strings.Replace(good, `"length": 0`, `"length": null`, 1)} {
		const want = "p.jsonl:2: no field length"
		for _, e := range []bool{false, true} {
			_, err := ScoreFile("p.jsonl", strings.NewReader(good+bad), d, Options{E: e})
			if e == (err == nil) || e && !strings.Contains(err.Error(), want) {
				t.Errorf("E %v, %s: error %v, want %s of LongBench-E only", e, bad, err, want)
			}
			r := NewReader("p.jsonl", d, strings.NewReader(good+bad))
			r.E = e
			if _, err := r.Next(); err != nil {
				t.Errorf("a length of 0: %v", err)
			}
			_, err = r.Next()
			if e == (err == nil) || e && !strings.Contains(err.Error(), want) {
				t.Errorf("a sample, E %v, %s: error %v, want %s of LongBench-E only", e, bad, err, want)
			}
		}
	}
}

// noise is 200 characters in no order, none of them popular.
func noise(seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	text := make([]rune, 300000)
	for i := range text {
		text[i] = rune(0x4e00 + r.IntN(200))
	}
	return string(text)
}

// TestScoreFileRefusesWhatTakesForever has texts that no model writes: what a
// comparison would look at is counted before or while it does, so that this test
// needs no clock. Without the counts it takes minutes and has no error.
func TestScoreFileRefusesWhatTakesForever(t *testing.T) {
	sentences := strings.Repeat(strings.Repeat("one two three four five six seven eight nine ", 10)+". ", 2000)
	var line strings.Builder
	for i := range 60000 {
		line.WriteRune(rune('a' + i*i%9973)) // no character is popular
	}
	for _, c := range []struct{ set, pred, ref, want string }{
		{"gov_report", sentences, sentences, "p.jsonl:1: "},
		{"gov_report", strings.Repeat("x", 1<<23), "x", "p.jsonl:1: "},
		{"lcc", line.String(), line.String() + "x", ""},
		{"lcc", strings.Repeat("ab", 150000), strings.Repeat("ba", 150000), ""},
		{"lcc", strings.Repeat("x", 1<<23), "x", "p.jsonl:1: "},
		{"lcc", noise(1), noise(2), "p.jsonl:1: "},
	} {
		d, err := Find(c.set)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ScoreFile("p.jsonl", strings.NewReader(file(t, []string{c.pred}, [][]string{{c.ref}}, nil, nil)), d, Options{})
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %d and %d bytes: error %v, want %q in it", c.set, len(c.pred), len(c.ref), err, c.want)
		}
	}
}

func TestReader(t *testing.T) {
	d, _ := Find("trec")
	good := `{"input": "q", "context": "c", "answers": ["City"], "length": 3, "dataset": "trec", "language": "en", "all_classes": ["City"], "_id": "x"}` + "\n"
	r := NewReader("trec.jsonl", d, strings.NewReader(good+"\n"+strings.Replace(good, `"trec"`, `"qasper"`, 1)))
	row, err := r.Next()
	if err != nil || row.ID != "x" || !slices.Equal(row.AllClasses, []string{"City"}) {
		t.Fatal(row, err)
	}
	if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "trec.jsonl:3: a sample of qasper") {
		t.Errorf("error %v, want one that names line 3", err)
	}
	both := strings.Replace(good, `"input"`, `"Input": "other", "input"`, 1) + strings.Replace(good, `"context"`, `"Context"`, 1)
	r = NewReader("trec.jsonl", d, strings.NewReader(both))
	if row, err := r.Next(); err != nil || row.Input != "q" || row.Line != 1 {
		t.Errorf("%+v, %v", row, err)
	}
	if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "trec.jsonl:2: ") || !strings.Contains(err.Error(), "field Context, want context") {
		t.Errorf("error %v, want one about the field Context of line 2", err)
	}
}

func TestPromptIsOnePass(t *testing.T) {
	d, _ := Find("qasper")
	s := &Suite{prompts: map[string]string{"qasper": "Read.\n\n{context}\n\nQuestion: {input}\nAnswer:"}}
	text, split := s.Prompt(d, &Row{Context: "see {input} and {context}", Input: "why {context}?"})
	if want := "Read.\n\nsee {input} and {context}\n\nQuestion: why {context}?\nAnswer:"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if !strings.HasPrefix(text[split:], "Question: why") {
		t.Errorf("the question begins at %q", text[split:])
	}
}

func TestTruncate(t *testing.T) {
	ids := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for _, c := range []struct {
		cut  Cut
		most int
		odd  bool
		want []int32
	}{
		{Middle, 10, false, ids}, {Middle, 4, false, []int32{0, 1, 8, 9}}, {Middle, 5, false, []int32{0, 1, 8, 9}},
		{Middle, 5, true, []int32{0, 1, 7, 8, 9}}, {Left, 3, false, []int32{7, 8, 9}}, {Right, 3, false, []int32{0, 1, 2}},
	} {
		head, tail := c.cut.Truncate(ids, c.most, c.odd)
		if got := slices.Concat(head, tail); !slices.Equal(got, c.want) {
			t.Errorf("%s to %d: %v, want %v", c.cut, c.most, got, c.want)
		}
	}
}

func TestAverage(t *testing.T) {
	var scored []Scored
	for _, d := range Datasets() {
		if !d.Chinese {
			score := 50.0
			if d.Name == "passage_count" {
				score = 2
			}
			scored = append(scored, Scored{Dataset: d.Name, Score: score})
		}
	}
	a := Average(scored)
	if a.English != 47 || a.WithoutCount != 50 || !a.Complete {
		t.Errorf("%+v", a)
	}
	if want := (50*5 + 26.0) / 6; math.Abs(a.ByCategory-want) > 1e-9 {
		t.Errorf("by category %v, want %v", a.ByCategory, want)
	}
}

func TestExtract(t *testing.T) {
	for in, want := range map[string]string{
		"The correct answer is (B)": "B", "**The correct answer is (C)**.": "C", "The correct answer is D.": "D",
		"the correct answer is (A)": "", "The correct answer is: (A)": "", "The correct answer is (E)": "",
		"The correct answer is Apple": "A", "The correct answer is A. Wait. The correct answer is (B)": "B",
		"B": "", "The correct answer is (insert answer here) (A)": "", "The correct answer is\n(A)": "",
	} {
		if got := Extract(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestJudgeFile(t *testing.T) {
	lines := `{"judge": true, "pred": "A", "difficulty": "easy", "length": "short"}
{"judge": false, "pred": null, "difficulty": "hard", "length": "medium"}
{"judge": true, "pred": "C", "difficulty": "hard", "length": "long"}
`
	array := "[" + strings.Join(strings.Split(strings.TrimSpace(lines), "\n"), ",") + "]"
	for _, text := range []string{lines, array} {
		j, err := JudgeFile("r.jsonl", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if j.Overall != 66.7 || *j.Easy != 100 || *j.Hard != 50 || *j.Short != 100 || *j.Medium != 0 || *j.Long != 100 || j.Nulls != 1 || j.Compensated != 75 {
			t.Errorf("%+v", j)
		}
	}
	if _, err := JudgeFile("r.jsonl", strings.NewReader(lines+`{"Judge": true}`)); err == nil || !strings.Contains(err.Error(), "r.jsonl:4: field Judge, want judge") {
		t.Errorf("error %v, want one about the field Judge of line 4", err)
	}
	short, _, _ := strings.Cut(lines, "\n")
	if j, err := JudgeFile("r.jsonl", strings.NewReader(short)); err != nil || *j.Easy != 100 || j.Hard != nil || *j.Short != 100 || j.Medium != nil || j.Long != nil {
		t.Errorf("%+v, %v, want no accuracy of groups without samples", j, err)
	}
	for text, want := range map[string]string{
		lines + strings.Replace(short, "easy", "Hard", 1):                                 `r.jsonl:4: the field difficulty is "Hard", want easy or hard`,
		lines + strings.Replace(short, "short", "8k", 1):                                  `r.jsonl:4: the field length is "8k", want short, medium or long`,
		lines + `{"judge": true, "pred": "A", "difficulty": "easy"}`:                      `r.jsonl:4: the field length is ""`,
		"[" + short + "," + strings.Replace(short, `"difficulty": "easy", `, "", 1) + "]": `r.jsonl: item 1: the field difficulty is ""`,
	} {
		if _, err := JudgeFile("r.jsonl", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
	if _, err := JudgeFile("r.jsonl", strings.NewReader(lines+`{"pred": "A"}`)); err == nil || !strings.Contains(err.Error(), "r.jsonl:4: no field judge") {
		t.Errorf("error %v, want one that names line 4", err)
	}
}

func TestItems(t *testing.T) {
	good := `{"_id": "1", "difficulty": "hard", "length": "long", "question": " q ", "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d", "answer": "B", "context": " doc "}`
	items, err := ReadItems("data.json", strings.NewReader("["+good+"]"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := items[0].Prompt("$DOC$|$Q$|$C_A$$C_B$$C_C$$C_D$|$COT$", " t "), "doc|q|abcd| t "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := ReadItems("data.jsonl", strings.NewReader(good+"\n"+strings.Replace(good, "choice_C", "choice_c", 1))); err == nil || !strings.Contains(err.Error(), "data.jsonl:2: field choice_c, want choice_C") {
		t.Errorf("error %v, want one about choice_c in line 2", err)
	}
	for old, c := range map[string]struct{ new, want string }{
		`"choice_C": "c", `:      {``, "data.jsonl:2: no field choice_C"},
		`"choice_D": "d"`:        {`"choice_D": null`, "data.jsonl:2: no field choice_D"},
		`"difficulty": "hard", `: {``, `data.jsonl:2: the field difficulty is ""`},
		`"length": "long"`:       {`"length": "Long"`, `data.jsonl:2: the field length is "Long"`},
		`"_id": "1", `:           {`"_id": "1", `, `data.jsonl:2: the _id is "1", which data.jsonl:1 has too`},
	} {
		if _, err := ReadItems("data.jsonl", strings.NewReader(good+"\n"+strings.Replace(good, old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", old, err, c.want)
		}
	}
	if _, err := ReadItems("data.json", strings.NewReader("["+good+","+good+"]")); err == nil || !strings.Contains(err.Error(), `data.json: item 1: the _id is "1", which data.json: item 0 has too`) {
		t.Errorf("error %v, want one that names both items", err)
	}
	bad := strings.Replace(good, `"B"`, `"E"`, 1)
	if _, err := ReadItems("data.jsonl", strings.NewReader(good+"\n"+bad)); err == nil || !strings.Contains(err.Error(), "data.jsonl:2: the answer is") {
		t.Errorf("error %v, want one that names line 2", err)
	}
}

func TestPick(t *testing.T) {
	for list, want := range map[string]int{"all": 21, "en": 16, "e": 13, "trec,en": 16, "lcc, qasper": 2} {
		got, err := Pick(list)
		if err != nil || len(got) != want {
			t.Errorf("%s: %d data sets, want %d (%v)", list, len(got), want, err)
		}
	}
	if _, err := Pick("lcc,nope"); err == nil {
		t.Error("an unknown data set was accepted")
	}
}

// TestCheckout reads the official files.
func TestCheckout(t *testing.T) {
	if *checkout == "" {
		t.Skip("go test -longbench DIR names a checkout of THUDM/LongBench, which this test reads")
	}
	s, err := LoadSuite(*checkout)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Known {
		t.Error("the configuration is not that of 2e00731")
	}
	for _, d := range Datasets() {
		if s.NewTokens(d) != d.NewTokens {
			t.Errorf("%s: %d tokens, want %d", d.Name, s.NewTokens(d), d.NewTokens)
		}
		text, split := s.Prompt(d, &Row{Context: "CONTEXT", Input: "INPUT"})
		if !strings.Contains(text[:split], "CONTEXT") || strings.ContainsAny(text, "{}") {
			t.Errorf("%s: the prompt is not filled", d.Name)
		}
	}
	for f := range formHashes {
		if _, known, err := LoadForm(*checkout, f); err != nil || !known {
			t.Errorf("%s: known %v, %v", f, known, err)
		}
	}
}
