package grammar

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gollm/gollm/tokenizer"
)

// BenchmarkMask is the masks of the tokens of an answer: states that are new, in a vocabulary
// that has seen others, and states that were there before. The times are of one mask, for
// each state the best of the rounds, as other programs disturb them.
func BenchmarkMask(b *testing.B) {
	tok, v := llama3Vocabulary(b)
	for _, a := range answers {
		ids := tok.Encode(a.document, tokenizer.EncodeOptions{})
		g := mustCompile(b, a.schema, Options{})
		follow(b, v.Bind(g), ids, nil)
		b.Run("answer="+a.name, func(b *testing.B) {
			var fresh, kept []time.Duration
			for b.Loop() {
				c := v.Bind(mustCompile(b, a.schema, Options{}))
				runtime.GC()
				fresh = follow(b, c, ids, fresh)
				kept = follow(b, c, ids, kept)
			}
			report(b, "new", fresh)
			report(b, "kept", kept)
		})
	}
}

// follow is the time of the mask before each token, or what best has of it where that is less.
func follow(b *testing.B, c *Constraint, ids []int32, best []time.Duration) []time.Duration {
	m := c.Matcher()
	for i, id := range ids {
		start := time.Now()
		m.Mask()
		took := time.Since(start)
		if len(best) == i {
			best = append(best, took)
		}
		best[i] = min(best[i], took)
		if err := m.AcceptToken(id); err != nil {
			b.Fatal(err)
		}
	}
	if !m.Done() {
		b.Fatal("the document is not whole")
	}
	return best
}

func report(b *testing.B, what string, times []time.Duration) {
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	slices.Sort(times)
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	b.ReportMetric(micro(sum)/float64(len(times)), what+"-mean-µs")
	b.ReportMetric(micro(times[len(times)/2]), what+"-median-µs")
	b.ReportMetric(micro(times[len(times)*95/100]), what+"-p95-µs")
	b.ReportMetric(micro(times[len(times)-1]), what+"-max-µs")
}

// BenchmarkVocabulary is the trie of a vocabulary, once for a tokenizer.
func BenchmarkVocabulary(b *testing.B) {
	tok, texts := llama3(b)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v, err := NewVocabulary(texts, tok.Ends())
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for b.Loop() {
		if _, err := NewVocabulary(texts, tok.Ends()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
	b.ReportMetric(float64(len(v.nodes)), "nodes")
}

// BenchmarkFreeText is the widest state, inside a string that may be anything, found anew: it is
// found once for a vocabulary.
func BenchmarkFreeText(b *testing.B) {
	_, v := llama3Vocabulary(b)
	c := v.Bind(Object(Options{}))
	best := time.Hour
	for b.Loop() {
		start := time.Now()
		c.newLexemeMask(freeText(), 0)
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(best.Nanoseconds())/1e3, "best-µs")
}

// BenchmarkCompile compiles the schemas of answers.
func BenchmarkCompile(b *testing.B) {
	for _, a := range answers {
		b.Run("schema="+a.name, func(b *testing.B) {
			for b.Loop() {
				mustCompile(b, a.schema, Options{})
			}
		})
	}
}

// BenchmarkAlike is the masks of the schema that is followed furthest: as many objects that begin alike
// as there may be.
func BenchmarkAlike(b *testing.B) {
	_, v := llama3Vocabulary(b)
	g := mustCompile(b, alike(maxAlike), Options{})
	worst := time.Duration(0)
	for b.Loop() {
		m := v.Bind(g).Matcher()
		for _, text := range []string{`{`, `"`, `a`, `b`, `"`, `:`} {
			if !m.Accept([]byte(text)) {
				b.Fatal(text)
			}
			start := time.Now()
			m.Mask()
			worst = max(worst, time.Since(start))
		}
	}
	b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
}

// alike is a schema of objects that begin alike.
func alike(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"type":"object","properties":{"ab":{"type":"object","properties":{"x%d":{"type":"string"}},"additionalProperties":{"type":"string"}}},"additionalProperties":{"type":"string"}}`, i))
	}
	return `{"anyOf":[` + strings.Join(all, ",") + `]}`
}
