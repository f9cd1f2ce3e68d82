package openai

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/serve"
)

// TestReads wants what a request has read in its usage, the same whatever else runs, and the
// sum of all requests in the metrics.
func TestReads(t *testing.T) {
	s := serveStories(t, nil)
	body := `{"prompt":` + quoted(strings.Repeat("Once upon a time there was a girl. ", 12)) + `,"temperature":0,"max_tokens":20,"seed":7,"attn":%q}`
	alone := map[string]readUsage{}
	for _, spec := range testAttn {
		var got completion
		s.post(t, "/v1/completions", fmt.Sprintf(body, spec), &got)
		g := got.Usage.Gollm
		if *g.Prefill != (readUsage{1, 1, 1}) || *g.Density < g.Decode.Density || *g.Density > 1 || *g.VRead > 1 {
			t.Errorf("%s: %+v, prompt %+v", spec, g, g.Prefill)
		}
		if sparse := spec != "dense"; (g.Decode.Density < 0.9) != sparse || (g.Decode.VRead < 1) != sparse || g.Decode.Density > g.Decode.VRead {
			t.Errorf("%s: steps %+v", spec, g.Decode)
		}
		alone[spec] = *g.Decode
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			spec := testAttn[i%2]
			if i > 3 {
				s.ask("POST", "/v1/completions", fmt.Sprintf(`{"prompt":"Tom","max_tokens":%d,"attn":%q}`, 5*i, spec))
				return
			}
			var got completion
			s.post(t, "/v1/completions", fmt.Sprintf(body, spec), &got)
			if *got.Usage.Gollm.Decode != alone[spec] {
				t.Errorf("%s: %+v beside others, %+v alone", spec, got.Usage.Gollm.Decode, alone[spec])
			}
		})
	}
	all.Wait()
	_, text := s.ask("GET", "/metrics", "")
	for name := range passCounters {
		for _, attn := range testAttn {
			if line := fmt.Sprintf("%s{attn=%q,model_name=%q,phase=%q} ", name, attn, "stories", "decode"); !strings.Contains(text, line) && name != "gollm_limit_seconds_total" {
				t.Errorf("no %s", line)
			}
		}
	}
}

// TestPasses adds passes up.
func TestPasses(t *testing.T) {
	m := NewMetrics("m", []string{"a"})
	m.Limit(func(p serve.Pass) time.Duration { return time.Duration(p.Rows) * time.Second })
	reads := engine.Reads{Pairs: 8, Selected: 4, Past: 6, K: 3, V: 2}
	for range 2 {
		m.Pass(0, serve.Pass{Decode: true, Rows: 3, Took: 2 * time.Second, Reads: reads, Counted: true, Select: time.Second, Attend: time.Second / 2})
		m.Pass(0, serve.Pass{Rows: 9, Took: time.Second, Reads: reads})
		m.Pass(0, serve.Pass{Rows: 1, Counted: true, Reads: engine.Reads{Pairs: 1}})
	}
	found, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range found {
		for _, c := range f.Metric {
			if len(c.Label) == 3 {
				got[f.GetName()+" "+c.Label[2].GetValue()] = c.Counter.GetValue()
			}
		}
	}
	want := map[string]float64{
		"gollm_passes_total decode": 2, "gollm_pass_seconds_total decode": 4, "gollm_select_seconds_total decode": 2, "gollm_attend_seconds_total decode": 1,
		"gollm_attention_pairs_total decode": 16, "gollm_attention_selected_pairs_total decode": 8, "gollm_kv_rows_total decode": 12,
		"gollm_k_rows_read_total decode": 6, "gollm_v_rows_read_total decode": 4, "gollm_limit_seconds_total decode": 6,
		"gollm_passes_total prefill": 4, "gollm_pass_seconds_total prefill": 2, "gollm_attention_pairs_total prefill": 2, "gollm_attention_selected_pairs_total prefill": 0,
		"gollm_kv_rows_total prefill": 0, "gollm_k_rows_read_total prefill": 0, "gollm_v_rows_read_total prefill": 0, "gollm_select_seconds_total prefill": 0, "gollm_attend_seconds_total prefill": 0,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

// TestAttn names the specs of the server in other words, which usage tells in those of the start.
func TestAttn(t *testing.T) {
	s := serveStories(t, nil)
	for text, want := range map[string]int{
		"dense": 0, " dense ": 0, "prefill=dense decode=dense": 0, "decode=dense": 0,
		testAttn[1]: 1, "quest(budget=32)": 1, "quest( share=head, page=16,budget=32 )": 1, "quest:paper-512(budget=32)": 1, "decode=quest(budget=32)": 1,
		"decode=quest(budget=32)  prefill=dense": 1,
	} {
		var got completion
		s.post(t, "/v1/completions", fmt.Sprintf(`{"prompt":"Tom","max_tokens":1,"attn":%q}`, text), &got)
		if got.Usage.Gollm.Attn != testAttn[want] {
			t.Errorf("%q is %q, want %q", text, got.Usage.Gollm.Attn, testAttn[want])
		}
	}
}

// TestUnknownReads says null, and why, where reads are not counted; and null alone where there was
// nothing to read.
func TestUnknownReads(t *testing.T) {
	all := engine.Reads{Pairs: 8, Selected: 8, Past: 6, K: 6, V: 6}
	for _, c := range []struct {
		what    string
		results []serve.Result
		want    string
	}{
		{"counted", []serve.Result{{PrefillReads: all, DecodeReads: all}}, `{"attn":"","density":1,"k_read":1,"v_read":1,"prefill":{"density":1,"k_read":1,"v_read":1},"decode":{"density":1,"k_read":1,"v_read":1},`},
		{"no step", []serve.Result{{PrefillReads: all}}, `{"attn":"","density":1,"k_read":1,"v_read":1,"prefill":{"density":1,"k_read":1,"v_read":1},"decode":null,`},
		{"sparse steps that nobody counts", []serve.Result{{PrefillReads: all, DecodeReads: all, DecodeUnknown: true}},
			`{"attn":"","density":null,"k_read":null,"v_read":null,"prefill":{"density":1,"k_read":1,"v_read":1},"decode":null,"uncounted":"the device replays`},
		{"one of two answers", []serve.Result{{PrefillReads: all, DecodeReads: all, PrefillUnknown: true, DecodeUnknown: true}, {PrefillReads: all, DecodeReads: all}},
			`{"attn":"","density":null,"k_read":null,"v_read":null,"prefill":null,"decode":null,"uncounted":"the device replays`},
	} {
		var u usage
		for _, r := range c.results {
			u.add(r, false)
		}
		if got := quoted(u.Gollm); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
