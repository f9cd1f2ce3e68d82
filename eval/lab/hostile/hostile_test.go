package main

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/gollm/gollm/weights"
)

// TestParts runs a few executions of every part: none fails, and each part has input that
// is accepted and input that is not.
func TestParts(t *testing.T) {
	for _, p := range parts {
		c := campaign{seed: 7, only: -1, workers: 2, length: hang, max: 200}
		got, err := c.run(p)
		if err != nil {
			t.Fatal(err)
		}
		if got.failures > 0 || len(got.results) < 2 {
			t.Error(got.text(p.name))
		}
	}
}

// script is a source of the random numbers that a fuzzer writes, and of others behind them.
type script struct {
	data []byte
	rand.PCG
}

// Uint64 is the next number, whose highest and lowest bits are a byte of the script.
func (s *script) Uint64() uint64 {
	x := s.PCG.Uint64()
	if len(s.data) > 0 {
		x = x&^(0xff<<56|0xff) | uint64(s.data[0])<<56 | uint64(s.data[0])
		s.data = s.data[1:]
	}
	return x
}

// FuzzRequests lets a fuzzer say how a valid request is changed: none panics, and each is answered with a
// right code.
func FuzzRequests(f *testing.F) {
	s, err := requestServer()
	if err != nil {
		f.Fatal(err)
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		data := make([]byte, 24)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		q := newRequest(rand.New(&script{data: data}))
		if result := feedRequest(s, q); strings.HasPrefix(result, "WRONG") {
			t.Errorf("%s\n%.2000q", result, q.bytes())
		}
	})
}

// TestFailuresAreSeen holds what a part that panics, or says that something is wrong,
// comes to.
func TestFailuresAreSeen(t *testing.T) {
	t.Chdir(t.TempDir())
	p := part{"broken", func() (execution, error) {
		return func(rng *rand.Rand) ([]byte, string) {
			switch rng.IntN(3) {
			case 0:
				panic("broken")
			case 1:
				return nil, "WRONG: broken"
			}
			return nil, "fine"
		}, nil
	}}
	got, err := campaign{only: -1, workers: 1, length: hang, max: 30}.run(p)
	if err != nil || got.executions != 30 || got.failures != 30-got.results["fine"] || got.results["panics"] == 0 || got.results["WRONG: broken"] == 0 {
		t.Errorf("%v, %s", err, got.text(p.name))
	}
}

// TestExecutionsRepeat: the input of an execution depends on its number and the seed.
func TestExecutionsRepeat(t *testing.T) {
	for _, p := range parts {
		a, err := p.start()
		if err != nil {
			t.Fatal(err)
		}
		b, _ := p.start()
		for n := range uint64(10) {
			first, result := a(rand.New(rand.NewPCG(1, n)))
			again, same := b(rand.New(rand.NewPCG(1, n)))
			if !bytes.Equal(first, again) || result != same {
				t.Errorf("%s %d: %s, then %s", p.name, n, result, same)
			}
		}
	}
}

// TestCostlyHeaders loads small ones of the most expensive headers and bounds what they
// allocate.
func TestCostlyHeaders(t *testing.T) {
	const size = 150_000
	for _, c := range costlyHeaders {
		data := c.build(size).bytes()
		before := allocated()
		f, err := weights.Parse("header.gguf", data)
		result := "refused"
		if err == nil {
			result = useHeader(f)
		}
		most := uint64(64 << 20)
		if strings.Contains(c.name, "inside each other") {
			most = 2 << 30 // the parser copies what is behind each statement; it keeps none of it
		}
		if took := allocated() - before; took > most {
			t.Errorf("%s: %d bytes are allocated for a header of %d, want at most %d (%s)", c.name, took, len(data), most, result)
		}
		if len(data) > 3*size || strings.Contains(result, "no vocabulary") {
			t.Errorf("%s: a header of %d bytes, %s", c.name, len(data), result)
		}
	}
}

// allocated is the bytes that this process has ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
