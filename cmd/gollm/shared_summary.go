package main

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	"unsafe"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/sparse"
)

// summary is what is said about a generation.
type summary struct {
	engine.Result
	Model, Device, Attn string
	Prompt              []int32
	KVBytes             int
	KVShared            int // bytes that layers save by sharing pages
	Figures             []sparse.Figure
	NaNScores           int64         // scores that were not numbers
	First               time.Duration // to the first token
	Hash                string
	Sampling            sampling.Params
}

// print writes the summary: one line on stderr, or JSON on stdout.
func (s *summary) print(cmd *cobra.Command, asJSON bool) error {
	if asJSON {
		return console.WriteJSON(cmd.OutOrStdout(), s.report())
	}
	cmd.PrintErrln(s.line())
	cmd.PrintErr(nanText(s.NaNScores))
	for _, f := range s.Figures {
		console.Logger(cmd)("attention: %s %.4g %s", f.Name, f.Value, f.Unit)
	}
	console.Logger(cmd)("stopped: %s; hash of the last logits %s", s.Stop, s.Hash)
	return nil
}

// line is the summary for people.
func (s *summary) line() string {
	parts := []string{console.Plural(len(s.Prompt), "prompt token") + console.RateText(s.PrefillRate())}
	if s.First > 0 {
		parts = append(parts, "first token after "+console.TimeText(s.First))
	}
	parts = append(parts,
		console.Plural(len(s.Tokens), "token")+console.RateText(s.DecodeRate()),
		"attention "+s.Attn,
		"KV "+console.SizeText(int64(s.KVBytes)))
	if s.KVShared > 0 {
		parts = append(parts, console.SizeText(int64(s.KVShared))+" less by pages that layers share")
	}
	if !s.Sampling.Greedy() { // the seed mattered
		parts = append(parts, fmt.Sprintf("seed %d", s.Sampling.Seed))
	}
	if why := stopText(s.Stop); why != "" {
		parts = append(parts, why)
	}
	return "[" + strings.Join(parts, " | ") + "]"
}

// stopText explains an end that is not the model's own.
func stopText(why engine.StopReason) string {
	switch why {
	case engine.StopLength:
		return "ended by -n"
	case engine.StopContext:
		return "the context is full: --ctx sets a longer one"
	case engine.StopCancelled:
		return "interrupted"
	case engine.StopString:
		return "ended by --stop"
	}
	return ""
}

// generateReport is the JSON form of a generation.
type generateReport struct {
	Text         string          `json:"text"`
	Tokens       []int32         `json:"tokens"`
	PromptTokens []int32         `json:"prompt_tokens"`
	StopReason   string          `json:"stop_reason"`
	Attn         string          `json:"attn"`
	Seed         uint64          `json:"seed"`
	Sampling     samplingReport  `json:"sampling"`
	PrefillTokS  float64         `json:"prefill_tok_s"`
	DecodeTokS   float64         `json:"decode_tok_s"`
	TTFTMs       float64         `json:"ttft_ms"`
	KVBytes      int             `json:"kv_bytes"`
	KVShared     int             `json:"kv_shared_bytes,omitempty"`
	Figures      []sparse.Figure `json:"attn_figures,omitempty"`
	NaNScores    int64           `json:"nan_scores"`
	Model        string          `json:"model"`
	Device       string          `json:"device"`
	LogitsHash   string          `json:"logits_hash"` // of the last logits, FNV-1a
}

// samplingReport is the JSON form of how tokens were sampled.
type samplingReport struct {
	Order            string  `json:"order"` // as --sampler-order has it
	Temperature      float32 `json:"temperature"`
	TopK             int     `json:"top_k"`
	TopP             float32 `json:"top_p"`
	MinP             float32 `json:"min_p"`
	RepeatPenalty    float32 `json:"repeat_penalty"`
	PresencePenalty  float32 `json:"presence_penalty"`
	FrequencyPenalty float32 `json:"frequency_penalty"`
	RepeatLastN      int     `json:"repeat_last_n"`
}

func newSamplingReport(s *sampling.Params) samplingReport {
	return samplingReport{
		Order: s.Order.String(), Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, RepeatPenalty: s.RepeatPenalty,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty, RepeatLastN: s.RepeatLastN,
	}
}

func (s *summary) report() generateReport {
	return generateReport{
		Text: s.Text, Tokens: append([]int32{}, s.Tokens...), PromptTokens: append([]int32{}, s.Prompt...),
		StopReason: string(s.Stop), Attn: s.Attn, Seed: s.Sampling.Seed, Sampling: newSamplingReport(&s.Sampling),
		PrefillTokS: console.Round3(s.PrefillRate()), DecodeTokS: console.Round3(s.DecodeRate()),
		TTFTMs: console.Round3(s.First.Seconds() * 1000), KVBytes: s.KVBytes, KVShared: s.KVShared, Figures: s.Figures, NaNScores: s.NaNScores,
		Model: s.Model, Device: s.Device, LogitsHash: s.Hash,
	}
}

// logitsHash identifies the logits after the last token, so that a change of
// results shows in every run.
func logitsHash(seq *engine.Sequence, vocab int) string {
	logits := make([]float32, vocab)
	if err := seq.Logits(logits); err != nil {
		return ""
	}
	h := fnv.New64a()
	h.Write(unsafe.Slice((*byte)(unsafe.Pointer(&logits[0])), 4*vocab))
	return fmt.Sprintf("%016x", h.Sum64())
}
