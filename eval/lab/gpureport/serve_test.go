package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServeRows fills the rows from what load bench and gollm bench say, and leaves them without
// figures where one of them says nothing.
func TestServeRows(t *testing.T) {
	for _, c := range []struct{ load, why string }{
		{`{"rows": [{"clients": 1, "gollm": [{"tok_s": 50, "ttft_ms": [10, 11, 12], "token_ms": 20}]}, {"clients": 3, "gollm": [{"tok_s": 92, "ttft_ms": [10, 30, 40], "token_ms": 30}]}]}`, ""},
		{`{"rows": [{"clients": 1, "gollm": [{"tok_s": 50, "ttft_ms": [10, 11, 12], "token_ms": 20}]}]}`, "1 rows, want 2"},
		{`{"rows": [{"clients": 1, "gollm": []}]}`, "no figures of 1 clients"},
		{`{}`, "0 rows"},
	} {
		dir := t.TempDir()
		done := make(chan struct{})
		close(done)
		r := &report{device: "cuda", small: true, folder: dir, limit: time.Minute, start: time.Now(), made: map[string]*making{"tiny F16": {path: "model.gguf", done: done}}}
		r.bin.load, r.bin.gollm = filepath.Join(dir, "load"), filepath.Join(dir, "gollm")
		for path, text := range map[string]string{
			r.bin.load:  "while [ \"$1\" != -json ]; do shift; done\ncat >\"$2\" <<'END'\n" + c.load + "\nEND\n",
			r.bin.gollm: `echo '{"rows": [{"phase": "decode", "tok_s": 80, "floor_tok_s": 125}]}'` + "\n",
		} {
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		p := part{served, time.Minute, r.serveRows(), r.serve}
		for _, w := range p.rows {
			w.Part, w.Unmeasured = p.name, "not reached"
		}
		r.runPart(t.Context(), p)
		for _, w := range p.rows {
			if (w.state() == measured) != (c.why == "") || !strings.Contains(w.Unmeasured, c.why) {
				t.Errorf("%s is %s: %s, want %q", w.What, w.state(), w.Unmeasured, c.why)
			}
		}
		if c.why != "" {
			continue
		}
		last := p.rows[3:]
		if last[0].Value != 92 || last[1].Value != 100 || math.Abs(last[1].Share-0.8) > 1e-9 || last[2].Value != 10 || !strings.Contains(last[2].Note, "99 %: 40 ms") {
			t.Errorf("%+v, %+v, %+v", last[0], last[1], last[2])
		}
	}
}

// TestPrefixRows fills the rows from what load prefix says, and leaves them without figures where
// it says nothing.
func TestPrefixRows(t *testing.T) {
	for _, c := range []struct{ load, why string }{
		{`{"rows": [{"anew_ms": 1000, "again_ms": 50, "cached_tokens": 128, "equal": true}, {"anew_ms": 800, "again_ms": 100, "cached_tokens": 128, "equal": false}]}`, ""},
		{`{"rows": [{"anew_ms": 1000, "again_ms": 50}]}`, "1 rows, want 2"},
		{`{"rows": [{"anew_ms": 1000, "again_ms": 50}, {}]}`, "no time of sketchwalk"},
	} {
		done := make(chan struct{})
		close(done)
		r := &report{device: "cuda", small: true, folder: t.TempDir(), limit: time.Minute, start: time.Now(), made: map[string]*making{"tiny F16": {path: "model.gguf", done: done}}}
		r.bin.load = filepath.Join(r.folder, "load")
		script := "#!/bin/sh\nwhile [ \"$1\" != -json ]; do shift; done\ncat >\"$2\" <<'END'\n" + c.load + "\nEND\n"
		if err := os.WriteFile(r.bin.load, []byte(script), 0o777); err != nil {
			t.Fatal(err)
		}
		rows := r.prefixRows()
		err := r.prefix(t.Context(), rows)
		if (err == nil) != (c.why == "") || (err != nil && !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%v, want %q", err, c.why)
		}
		if err != nil {
			continue
		}
		if rows[0].Value != 0.05 || rows[0].state() != met || rows[1].Value != 0.125 || rows[1].state() == met || !strings.Contains(rows[1].Note, "another one") {
			t.Errorf("%+v, %+v", rows[0], rows[1])
		}
	}
}
