package trial

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzOpenLog opens any bytes as a log: it is refused, or its whole lines stay as
// they are and an answer can be added.
func FuzzOpenLog(f *testing.F) {
	f.Add([]byte(`{"pred":"a","gollm":{"line":0,"score":1}}` + "\n" + `{"pred":"b","gollm":{"li`))
	f.Add([]byte(`{"gollm":null}` + "\n"))
	f.Add([]byte("\n\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const name = "log.jsonl"
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLog(dir, name)
		if err != nil {
			return
		}
		free := 0
		for l.Done(free) {
			free++
		}
		r, e := answerTo(free)
		if err := l.Append(r, e, Times{}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(after, data[:bytes.LastIndexByte(data, '\n')+1]) {
			t.Fatalf("whole lines were changed: %q to %q, %v", data, after, err)
		}
		if again, err := ReadAnswers(dir, name); err != nil || len(again) != l.Len() {
			t.Fatalf("%d answers, want %d: %v", len(again), l.Len(), err)
		}
	})
}
