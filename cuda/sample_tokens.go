//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
)

// Of the kernels of sample_token.cu: logits per thread, and rows per launch.
const (
	logitsPerThread = 4
	maxSampledRows  = 16
)

// The order of sampler stages, as in sample_token.cu.
const (
	topKBeforeP = 1 << iota
	minPBeforeP
	warmTopP
	warmMinP
)

// sampler is the stages that a kernel computes of a row, penalties first.
type sampler struct {
	sampling.Params
	order int
}

// stagesOf makes a sampler of some stages; the settings of all others are neutral.
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

// splitStages splits the stages in front of the penalties, which need a launch of their own,
// from the rest. Without any, before has order -1.
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

// sampler appends a SamplerParams.
func (c *launch) sampler(s *sampler) *launch {
	two := func(lo, hi float32) { c.word(uint64(math.Float32bits(lo)) | uint64(math.Float32bits(hi))<<32) }
	two(s.Temperature, s.TopP)
	two(s.MinP, s.RepeatPenalty)
	two(s.PresencePenalty, s.FrequencyPenalty)
	return c.word(uint64(min(s.TopK, math.MaxInt32)) | uint64(min(s.RepeatLastN, math.MaxInt32))<<32).word(s.Seed).int(s.order)
}

// sampleTokens samples the next token of each row.
func (o *ops) sampleTokens(c *device.SampleTokens) {
	rows, vocab := c.Logits.Dim(0), c.Logits.Dim(1)
	threads := threadsFor(vocab, 1024)
	parts := ceil(vocab, threads*logitsPerThread)
	perRow := 8*parts*threads/32 + 16*parts
	if perRow > workspaceSize {
		o.d.keep(fmt.Errorf("Sample: %d tokens are more than the workspace is for", vocab))
		return
	}
	each := min(workspaceSize/perRow, maxCounters, maxSampledRows)
	for lo := 0; lo < rows; lo += each {
		o.sampleRows(c, lo, min(lo+each, rows), threads, parts)
	}
}

// sampleRows samples the tokens of rows lo to hi-1 by so many thread blocks per row.
func (o *ops) sampleRows(c *device.SampleTokens, lo, hi, threads, parts int) {
	vocab := c.Logits.Dim(1)
	var before, rest [maxSampledRows]sampler
	split, summed := false, false
	for i := range c.Params[lo:hi] {
		before[i], rest[i] = splitStages(&c.Params[lo+i])
		split = split || before[i].order >= 0
		// Without top-k the weights of all tokens are summed, in a second launch.
		summed = summed || rest[i].Temperature > 0 && (rest[i].TopK <= 0 || rest[i].TopK >= vocab)
	}
	summed = summed && parts > 1 && parts <= threads
	sums := (hi - lo) * 8 * parts * threads / 32 // in the workspace, behind the best tokens of each warp
	queue := func(name string, samplers []sampler, parts int) {
		k := o.launch(name).tensor(c.Next.Rows(lo, hi)).tensor(c.Logits.Rows(lo, hi)).tensor(c.History.Rows(lo, hi)).tensor(c.Pos.Rows(lo, hi)).
			int(vocab, c.History.Dim(1)).work(0)
		if summed {
			k.work(sums)
		} else {
			k.word(0)
		}
		k.counters()
		for i := range samplers {
			k.sampler(&samplers[i])
		}
		k.pdlEarly().run(blocks{parts, hi - lo, 1}, threads)
	}
	if split {
		queue("sample_before", before[:], 1)
	}
	queue("sample_token", rest[:], parts)
	if summed {
		queue("sample_sums", rest[:], parts)
	}
}
