//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
)

// sampleEach is the logits that a thread of the kernel sample looks at, and sampleRows the
// rows whose settings a launch has room for.
const (
	sampleEach = 4
	sampleRows = 16
)

// The order of stages, as the kernels have it; see sample_token.cu.
const (
	topKBeforeP = 1 << iota
	minPBeforeP
	warmTopP
	warmMinP
)

// sampler is what a kernel does of the stages of a row: penalties first, if any.
type sampler struct {
	sampling.Params
	order int
}

// stagesOf is those stages in one piece. The settings of others do nothing.
func stagesOf(s *sampling.Params, stages []sampling.Stage) sampler {
	on := sampler{Params: sampling.Params{Temperature: 1, TopP: 1, Seed: s.Seed}}
	warm := false
	for i, stage := range stages {
		switch stage {
		case sampling.StagePenalties:
			on.RepeatPenalty, on.PresencePenalty, on.FrequencyPenalty, on.RepeatLastN = s.RepeatPenalty, s.PresencePenalty, s.FrequencyPenalty, s.RepeatLastN
		case sampling.StageTopK:
			on.TopK = s.TopK
		case sampling.StageTopP:
			on.TopP = s.TopP
			for _, before := range stages[:i] {
				switch before {
				case sampling.StageTopK:
					on.order |= topKBeforeP
				case sampling.StageMinP:
					on.order |= minPBeforeP
				}
			}
			if warm {
				on.order |= warmTopP
			}
		case sampling.StageMinP:
			on.MinP = min(s.MinP, 1)
			if warm {
				on.order |= warmMinP
			}
		case sampling.StageTemperature:
			on.Temperature, warm = max(s.Temperature, 0), s.Temperature > 0
		}
	}
	return on
}

// splitStages is the stages before the penalties, which a kernel does by itself, and
// those from there on, or all where there are no penalties. Nothing before them is
// order -1.
func splitStages(s *sampling.Params) (before, rest sampler) {
	list, n := s.Stages()
	stages := list[:n]
	cut := slices.Index(stages, sampling.StagePenalties)
	if cut <= 0 {
		before.order = -1
		return before, stagesOf(s, stages)
	}
	return stagesOf(s, stages[:cut]), stagesOf(s, stages[cut:])
}

// sampler gives a Setting.
func (c *call) sampler(s *sampler) *call {
	two := func(lo, hi float32) { c.word(uint64(math.Float32bits(lo)) | uint64(math.Float32bits(hi))<<32) }
	two(s.Temperature, s.TopP)
	two(s.MinP, s.RepeatPenalty)
	two(s.PresencePenalty, s.FrequencyPenalty)
	return c.word(uint64(min(s.TopK, math.MaxInt32)) | uint64(min(s.RepeatLastN, math.MaxInt32))<<32).word(s.Seed).int(s.order)
}

// sampleTokens chooses the token that follows each row.
func (o *ops) sampleTokens(c *device.SampleTokens) {
	next, logits, history, pos, s := c.Next, c.Logits, c.History, c.Pos, c.Params
	rows, vocab := logits.Dim(0), logits.Dim(1)
	threads := threadsFor(vocab, 1024)
	parts := ceil(vocab, threads*sampleEach)
	tops, sums := 8*parts*threads/32, 16*parts
	if tops+sums > workspaceSize {
		o.d.keep(fmt.Errorf("Sample: %d tokens are more than the workspace is for", vocab))
		return
	}
	for lo, most := 0, min(workspaceSize/(tops+sums), decodeCounts, sampleRows); lo < rows; lo += most {
		hi := min(lo+most, rows)
		var before, rest [sampleRows]sampler
		split, summed := false, false
		for i := range s[lo:hi] {
			before[i], rest[i] = splitStages(&s[lo+i])
			split = split || before[i].order >= 0
			// Without top-k the weights of all tokens are added up in a second launch.
			summed = summed || rest[i].Temperature > 0 && (rest[i].TopK <= 0 || rest[i].TopK >= vocab)
		}
		summed = summed && parts > 1 && parts <= threads
		call := func(name string, settings []sampler, parts int) {
			c := o.call(name).tensor(next.Rows(lo, hi)).tensor(logits.Rows(lo, hi)).tensor(history.Rows(lo, hi)).tensor(pos.Rows(lo, hi)).
				int(vocab, history.Dim(1)).work(0)
			if summed {
				c.work((hi - lo) * tops)
			} else {
				c.word(0)
			}
			c.word(uint64(o.d.counts.at))
			for i := range settings {
				c.sampler(&settings[i])
			}
			c.pdlEarly().run(blocks{parts, hi - lo, 1}, threads)
		}
		if split {
			call("sample_before", before[:], 1)
		}
		call("sample_token", rest[:], parts)
		if summed {
			call("sample_sums", rest[:], parts)
		}
	}
}
