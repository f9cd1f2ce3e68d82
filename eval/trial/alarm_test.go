package trial

import (
	"strings"
	"testing"
)

// scoredRun is the folder of a run of dense attention and another, with answers of one unit
// whose scores are wins, ties and losses of the other.
func scoredRun(t *testing.T, first string, win, tie, loss int, alarms ...Alarm) *Summary {
	t.Helper()
	dir := t.TempDir()
	m := manifest(Shard{Of: 1})
	m.Identity.Settings = []string{first, "window(size=8)"}
	m.Units = m.Units[:1]
	m.Units[0].Count = win + tie + loss
	f, err := Open(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, attn := range m.Identity.Settings {
		l, err := OpenLog(dir, LogName(i, attn, 0, m.Units[0].Name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range m.Units[0].Count {
			score := 0.5
			switch {
			case line < win:
				score = float64(i)
			case line >= win+tie:
				score = float64(1 - i)
			}
			if err := l.Append(row{}, Extra{Line: line, Score: &score, Prompt: 10, New: 1, BOS: []int{0}, Alarms: alarms}, Times{PrefillMs: 1, Prompt: 10}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Summarize(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBetterThanDense has an alarm where wins and losses are more uneven than once in a hundred
// by chance, and only for the better and only against dense attention: 8 to 0 is p = 0.0078,
// 7 to 0 is 0.016, and 20 to 5 is 0.0041 where 19 to 6 is 0.015.
func TestBetterThanDense(t *testing.T) {
	for _, c := range []struct {
		first          string
		win, tie, loss int
		want           string
	}{
		{"dense", 8, 3, 0, "with 8 wins and 0 losses, p = 0.0078 by an exact sign test"},
		{"dense", 7, 3, 0, ""},
		{"dense", 20, 0, 5, "with 20 wins and 5 losses, p = 0.0041"},
		{"dense", 19, 0, 6, ""},
		{"dense", 0, 3, 8, ""},
		{"window(size=9)", 8, 3, 0, ""},
	} {
		s := scoredRun(t, c.first, c.win, c.tie, c.loss)
		if c.want == "" && len(s.Alarms) > 0 {
			t.Errorf("%d wins and %d losses against %s: %q", c.win, c.loss, c.first, s.Alarms)
		}
		if c.want != "" && (len(s.Alarms) != 2 || !strings.Contains(s.Alarms[0], c.want) || s.Alarms[1] != "1 of 1 such tests of window(size=8) have p < 0.01") {
			t.Errorf("%d wins and %d losses: %q, want %q", c.win, c.loss, s.Alarms, c.want)
		}
	}
}

// TestPromptAlarms counts the alarms that stand beside answers, once for all settings, and
// leaves out what no run writes.
func TestPromptAlarms(t *testing.T) {
	s := scoredRun(t, "dense", 2, 1, 0, AlarmPrefix, AlarmBOS, "<script>")
	want := []string{"3 of 3 prompts " + string(AlarmBOS) + "; one is that of sample 0 of a", "3 of 3 prompts " + string(AlarmPrefix) + "; one is that of sample 0 of a"}
	if strings.Join(s.Alarms, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", s.Alarms, want)
	}
}
