package devtest

import (
	"fmt"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// headShape is heads as models have them: query heads, kv heads, numbers of each.
type headShape struct{ heads, kvHeads, dim int }

// headShapes are every head dimension of published models with 1, 4 and 8 query heads
// for each kv head, and the 7 of Qwen2.5-7B. Every op that takes heads runs at each of them.
var headShapes = func() (all []headShape) {
	for _, dim := range []int{64, 80, 96, 128, 256} {
		for _, heads := range [][2]int{{4, 4}, {8, 2}, {8, 1}} {
			all = append(all, headShape{heads[0], heads[1], dim})
		}
	}
	return append(all, headShape{7, 1, 64}, headShape{7, 1, 128})
}()

func (s headShape) String() string {
	return fmt.Sprintf("heads=%d of %d/dim=%d", s.kvHeads, s.heads, s.dim)
}

// of is a call with heads of the shape.
func (s headShape) of(a attention) attention {
	a.heads, a.kvHeads, a.dim = s.heads, s.kvHeads, s.dim
	return a
}

// headCase is a case of the ops that it names, methods of [device.Queue], at any shape.
type headCase struct {
	ops  string // with spaces between
	name string
	job  func(b *bed, s headShape) job
}

// Calls of a step, of which a slot is idle, and of a prompt.
var (
	headStep   = attention{lens: []int{70, 0, 3}}
	headPrompt = attention{lens: []int{70}, rows: 5}
)

// headCases are small: what depends on lengths, plans and settings has cases of its own.
var headCases = []headCase{
	{"Rope", "", func(b *bed, s headShape) job { return rope(b, s.dim/2, 0, s.kvHeads == 1) }},
	{"Append", "", func(b *bed, s headShape) job { return appendRows(b, s.of(headStep)) }},
	{"Attend", "step", func(b *bed, s headShape) job { return attendJob(b, s.of(headStep)) }},
	{"Attend", "prompt", func(b *bed, s headShape) job { return attendJob(b, s.of(headPrompt)) }},
	{"Attend", "tokens", func(b *bed, s headShape) job {
		a := s.of(headStep)
		a.selected, a.listHeads, a.sink, a.recent = device.Tokens, s.heads, 2, 5
		return attendJob(b, a)
	}},
	{"ExactScores", "step", func(b *bed, s headShape) job { return exactScores(b, s.of(headStep), device.Visible) }},
	{"ExactScores", "prompt", func(b *bed, s headShape) job { return exactScores(b, s.of(headPrompt), device.Visible) }},
	{"SumBlocks", "", func(b *bed, s headShape) job {
		return sumBlocks(b, headBlocks.with(b), s.kvHeads, s.heads, s.dim)
	}},
	{"ProjectMeans", "", func(b *bed, s headShape) job { return projectMeans(b, headBlocks.with(b), s.kvHeads, s.dim, 16) }},
	{"ProjectRows", "", func(b *bed, s headShape) job {
		return projectRows(b, headBlocks.with(b), s.kvHeads, s.heads, s.dim, 16)
	}},
	{"ResidualSample", "", func(b *bed, s headShape) job {
		c := residualCase{attention: s.of(attention{selected: device.None, sink: 3, recent: 9, lens: []int{150, 0}, spread: .5}), residual: residuals["plain"]}
		c.numbered()
		c.residual.Draw = rng.Address{Seed: 1 << 40, Layer: 2}
		return c.job(b)
	}},
	{"ValueSample", "", func(b *bed, s headShape) job {
		c := valueCase{attention: s.of(headStep), draws: device.ValueDraws{Samples: 16, Draw: rng.Address{Seed: 9, Layer: 2}}}
		c.numbered()
		return c.job(b)
	}},
	{"QueryFeatureSample", "", func(b *bed, s headShape) job {
		f := device.QueryFeatures{Draws: 4, Strata: true, Mean: s.kvHeads == 1, Draw: rng.Address{Seed: 7, Layer: 2}}
		return queryFeatures(b, s.of(headStep), f)
	}},
	{"AnchorMax", "", func(b *bed, s headShape) job { return s.margin().anchorMax(b) }},
	{"MeanRows", "", func(b *bed, s headShape) job { return s.margin().meanRows(b) }},
	{"WithinMargin", "", func(b *bed, s headShape) job { return s.margin().withinMargin(b) }},
	{"ReuseSelection", "", func(b *bed, s headShape) job {
		r := reuses()["plain"]
		r.attention = s.of(r.attention)
		r.groups, r.steps, r.lens = s.heads, 2, []int{40, 0, 70}
		r.fill(b)
		return r.job(b)
	}},
	{"KeyBounds", "", func(b *bed, s headShape) job { return s.bounds().keyBounds(b) }},
	{"BoundScores", "", func(b *bed, s headShape) job { return s.bounds().boundScores(b) }},
	{"VerticalSlash", "", func(b *bed, s headShape) job { return verticalSlash(b, 70, 65, s.line(), forced{}) }},
	{"MeanKeys", "", func(b *bed, s headShape) job { return meanKeys(b, 70, 64, s.line()) }},
	{"PooledAgreement", "", func(b *bed, s headShape) job { return pooledAgreement(b, 70, 64, s.line()) }},
	{"AttentionMass", "step", func(b *bed, s headShape) job { return attentionMass(b, s.of(headStep)) }},
	{"AttentionMass", "prompt", func(b *bed, s headShape) job { return attentionMass(b, s.of(headPrompt)) }},
	{"KeyHashes Collisions", "", func(b *bed, s headShape) job {
		c := hashCase{attention: s.of(attention{lens: []int{70}, sink: 4, recent: 10}), since: []int32{60}, steps: 2, tables: 7, bits: 3, least: 1}
		return c.job(b)
	}},
	{"KeyChannels ChannelScores", "", func(b *bed, s headShape) job {
		return codeCase{attention: s.labels(), groups: s.heads, n: s.dim / 16, levels: 16}.channelScores(b)
	}},
	{"KeySigns SignScores", "", func(b *bed, s headShape) job {
		return codeCase{attention: s.labels(), keyGroups: s.kvHeads, widths: []int{s.dim, 8}}.signScores(b)
	}},
	{"KeyMirror MirrorScores", "", func(b *bed, s headShape) job {
		return mirrorCase{attention: s.labels(), bits: 4 + 4*(s.kvHeads%2), region: device.SelectedRegion}.job(b)
	}},
}

// headBlocks are a step of which a slot is idle.
var headBlocks = blocks{lens: []int{page + 6, 0, 3}}

// attendJob is a case of Attend.
func attendJob(b *bed, a attention) job {
	call := b.attend(&a, b.shuffled(&a))
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Attend{Dst: call.dst, Q: call.q, KV: call.kv, Plan: call.plan})
		},
		expect: []expectation{{name: "dst", got: call.dst, want: a.want(before), bound: attendBound}},
	}
}

func (s headShape) margin() *marginCase {
	return &marginCase{attention: s.of(attention{sink: 8, recent: 8, align: 16, lens: []int{97}, rows: 17, group: 16, selected: device.Tokens}), block: 4, margin: .5}
}

func (s headShape) bounds() boundCase {
	return boundCase{attention: s.of(attention{lens: []int{75, 0, 9}}), len: []int{70, 0, 3}, parts: 4, newest: 1, groups: s.kvHeads}
}

func (s headShape) line() lineShape {
	return lineShape{heads: s.heads, kvHeads: s.kvHeads, dim: s.dim}
}

func (s headShape) labels() attention {
	return s.of(attention{selected: device.None, sink: 4, recent: 10, lens: []int{70, 0, 20}})
}

// shapeCases are all of them at all shapes.
func shapeCases() []testCase {
	var cases []testCase
	for _, c := range headCases {
		for _, s := range headShapes {
			cases = append(cases, testCase{fmt.Sprintf("op=%s/%s/%v", c.ops, c.name, s), func(b *bed) job { return c.job(b, s) }})
		}
	}
	return cases
}
