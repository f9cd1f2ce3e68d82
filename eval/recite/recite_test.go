package recite

import (
	"slices"
	"strings"
	"testing"
)

// TestCase has every line of the list once, and asks for them in their order or sorted.
func TestCase(t *testing.T) {
	for _, sorted := range []bool{false, true} {
		l := List{Lines: 50, Sorted: sorted, Seed: 3}
		c := l.Make(1)
		var listed, right []string
		for line := range strings.Lines(c.Text[:c.Split]) {
			if strings.HasPrefix(line, "One of") {
				listed = append(listed, line)
			}
		}
		for _, p := range c.Right {
			right = append(right, p.Text())
		}
		if len(listed) != 50 || len(right) != 50 {
			t.Fatalf("%d lines are listed and %d are right, want 50", len(listed), len(right))
		}
		if slices.Equal(listed, right) == sorted {
			t.Errorf("sorted %v: the answer is in the order of the list: %v", sorted, !sorted)
		}
		if sorted != slices.IsSorted(right) {
			t.Errorf("sorted %v: the answer is sorted: %v", sorted, !sorted)
		}
		slices.Sort(listed)
		slices.Sort(right)
		if !slices.Equal(listed, right) || len(slices.Compact(right)) != 50 {
			t.Errorf("the lines of the answer are not those of the list, each once")
		}
		if other := l.Make(2); other.Text == c.Text || l.Make(1).Text != c.Text {
			t.Error("cases are not made of their numbers alone")
		}
	}
	for n, want := range map[int]bool{1: false, 2: true, MaxLines: true, MaxLines + 1: false} {
		if (List{Lines: n}).Check() == nil != want {
			t.Errorf("a list of %d lines is taken: %v", n, !want)
		}
	}
}

// TestFree scores a free answer line by line: where a line should be, whole, and no more.
func TestFree(t *testing.T) {
	c := List{Lines: 4, Seed: 1}.Make(0)
	line := func(i int) string { return c.Right[i].Text() }
	for text, want := range map[string][]bool{
		line(0) + line(1) + line(2) + line(3):                   {true, true, true, true},
		"\n  " + line(0) + "\n\n" + line(1) + line(1) + line(3): {true, true, false, true},
		line(0) + line(2) + line(3):                             {true, false, false, false},
		line(0) + strings.TrimSpace(line(1)) + "x\n" + line(2):  {true, false, true, false},
		"": {false, false, false, false},
	} {
		var a Answer
		a.Truth, a.Said = Free(&c, text)
		n := 0
		for _, ok := range want {
			if ok {
				n++
			}
		}
		if got := a.Right(); !slices.Equal(got, want) || a.Score() != float64(n)/4 {
			t.Errorf("%q: %v and %v, want %v", text, got, a.Score(), want)
		}
	}
	long := strings.Repeat("x\n", 9)
	if _, said := Free(&c, long); len(said) != 4 {
		t.Errorf("%d lines are kept of an answer of 9 to 4", len(said))
	}
}

// TestCurve counts every line in one point, over answers.
func TestCurve(t *testing.T) {
	var answers []Answer
	for k := range 2 {
		a := Answer{}
		for i := range 40 {
			a.Truth, a.Steps = append(a.Truth, "x"), append(a.Steps, 10*i)
			said := "x"
			if i >= 20 && k == 0 || i >= 30 {
				said = "y"
			}
			a.Said = append(a.Said, said)
		}
		answers = append(answers, a)
	}
	points := Curve(answers)
	lines, next := 0, 0
	for _, p := range points {
		if p.From != next || p.To <= p.From || p.Right.N != 2*(p.To-p.From) || p.Step != 10*float64(p.From+p.To-1)/2 {
			t.Errorf("%+v follows line %d", p, next)
		}
		want := map[bool]float64{true: 1, false: 0}[p.To <= 20]
		if p.From >= 20 && p.To <= 30 {
			want = 0.5
		}
		if (p.To <= 20 || p.From >= 20 && p.To <= 30 || p.From >= 30) && p.Right.Mean != want {
			t.Errorf("%+v, want %v", p, want)
		}
		lines, next = lines+p.Right.N, p.To
	}
	if len(points) != 16 || lines != 80 {
		t.Errorf("%d points of %d lines, want 16 of 80", len(points), lines)
	}
	if Curve(nil) != nil {
		t.Error("a curve without answers")
	}
	var b strings.Builder
	if err := WriteCSV(&b, points); err != nil || strings.Count(b.String(), "\n") != 17 || !strings.HasPrefix(b.String(), "first_line,last_line,decode_step,lines,right,low,high\n1,2,5.0,4,1.0000,1.0000,1.0000\n") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestCheck(t *testing.T) {
	for _, a := range []Answer{{}, {Truth: []string{"a"}}, {Truth: []string{"a"}, Steps: []int{0}, Said: []string{"a", "b"}}} {
		if a.Check() == nil {
			t.Errorf("%+v is taken", a)
		}
	}
}
