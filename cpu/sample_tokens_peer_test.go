package cpu

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/gollm/gollm/device/sampling"
)

// peerSamples is testdata/sampler.json; see scripts/sampler-peer.py.
type peerSamples struct {
	Logits []byte
	Tokens []int32
	Draws  int
	Cases  []struct {
		Name    string
		Setting struct {
			Samplers         string
			Temp             float32
			TopK             int     `json:"top_k"`
			TopP             float32 `json:"top_p"`
			MinP             float32 `json:"min_p"`
			RepeatPenalty    float32 `json:"repeat_penalty"`
			PresencePenalty  float32 `json:"presence_penalty"`
			FrequencyPenalty float32 `json:"frequency_penalty"`
			RepeatLastN      int     `json:"repeat_last_n"`
		}
		Left  map[int32]float64 // probabilities
		Drawn map[int32]int
	}
}

// TestSampleAgainstLlamaCpp compares the candidates that the stages leave of a model's logits,
// with their probabilities, and 10,000 draws, with llama.cpp's.
func TestSampleAgainstLlamaCpp(t *testing.T) {
	raw, err := os.ReadFile("../testdata/sampler.json")
	if err != nil {
		t.Fatal(err)
	}
	var peer peerSamples
	if err := json.Unmarshal(raw, &peer); err != nil {
		t.Fatal(err)
	}
	logits := make([]float32, len(peer.Logits)/4)
	for i := range logits {
		logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(peer.Logits[4*i:]))
	}
	pos := int32(len(peer.Tokens) - 1)
	for _, c := range peer.Cases {
		t.Run(c.Name, func(t *testing.T) {
			s := sampling.Params{
				Temperature: c.Setting.Temp, TopK: c.Setting.TopK, TopP: c.Setting.TopP, MinP: c.Setting.MinP,
				RepeatPenalty: c.Setting.RepeatPenalty, PresencePenalty: c.Setting.PresencePenalty,
				FrequencyPenalty: c.Setting.FrequencyPenalty, RepeatLastN: c.Setting.RepeatLastN,
			}
			if s.Order, err = sampling.ParseOrder(c.Setting.Samplers); err != nil {
				t.Fatal(err)
			}
			ring := make([]int32, 64)
			copy(ring, peer.Tokens)
			drawn := map[int32]int{}
			var m tokenSampler
			for seed := range peer.Draws {
				s.Seed = uint64(seed)
				drawn[m.sample(slices.Clone(logits), ring, pos, &s)]++
			}
			if !s.Greedy() {
				checkLeft(t, m.kept, c.Left)
			}
			for id := range drawn {
				if c.Left[id] == 0 {
					t.Errorf("token %d was drawn, which llama.cpp leaves out", id)
				}
			}
			ours, theirs := fit(drawn, c.Left, peer.Draws), fit(c.Drawn, c.Left, peer.Draws)
			t.Logf("%d tokens left; gollm's draws: %v; llama.cpp's: %v", len(c.Left), ours, theirs)
			if ours.p < 1e-4 {
				t.Errorf("gollm's draws do not have the probabilities of what is left: %v", ours)
			}
		})
	}
}

// checkLeft compares the candidates that are left with llama.cpp's.
func checkLeft(t *testing.T, kept []candidate, want map[int32]float64) {
	t.Helper()
	there := 0
	for _, c := range kept {
		p, ok := want[c.id]
		if c.p > 0 {
			there++
		}
		if c.p > 0 && !ok || math.Abs(c.p-p) > 1e-6 {
			t.Errorf("token %d is left with %v, want %v", c.id, c.p, p)
		}
	}
	if there != len(want) {
		t.Errorf("%d tokens are left, want %d", there, len(want))
	}
}

// goodness is how well counts fit probabilities (chi-squared).
type goodness struct {
	chi2      float64
	freedom   int
	p         float64 // of a chi2 at least so large
	variation float64 // total variation distance
}

func (g goodness) String() string {
	return fmt.Sprintf("chi2 %.1f of %d, p %.3f, total variation %.4f", g.chi2, g.freedom, g.p, g.variation)
}

// fit compares n counts with probabilities. Cells that expect fewer than 5 are merged.
func fit(counts map[int32]int, want map[int32]float64, n int) goodness {
	var g goodness
	var rest, few float64
	for id, p := range want {
		got, expect := float64(counts[id]), p*float64(n)
		g.variation += math.Abs(got-expect) / float64(2*n)
		if expect < 5 {
			rest, few = rest+got, few+expect
			continue
		}
		g.chi2 += (got - expect) * (got - expect) / expect
		g.freedom++
	}
	if few > 0 {
		g.chi2 += (rest - few) * (rest - few) / few
		g.freedom++
	}
	if g.freedom--; g.freedom == 0 {
		g.p = 1
		return g
	}
	// Wilson and Hilferty: the cube root of chi2 over its mean is nearly normal.
	v := 2 / (9 * float64(g.freedom))
	g.p = math.Erfc((math.Cbrt(g.chi2/float64(g.freedom))-1+v)/math.Sqrt(2*v)) / 2
	return g
}
