package serve

import (
	"time"

	"github.com/gollm/gollm/engine"
)

// Pass is a prefill chunk or a decode step.
type Pass struct {
	Decode bool
	Rows   int // positions of a prompt, or sequences
	Past   int // positions that causal attention reads for them, in all
	Took   time.Duration

	Reads   engine.Reads // of attention
	Counted bool         // Reads are known

	Select, Attend time.Duration // of the attention; 0 where they are not timed
}

// meter knows what the attention of a lane reads. Where the device replays captured steps it
// is known for phases of dense attention alone, because counting would make the steps eager.
type meter struct {
	*engine.Meter                   // nil: reads are not counted
	watch         *engine.Stopwatch // nil with it
	prefill       bool              // everything is read in prefill
	decode        bool              // and in decode steps
	queries, rows int64             // query heads and kv heads of all layers
}

func newMeter(e *engine.Engine, r *engine.Runner) meter {
	c := e.Model.Config
	m := meter{queries: int64(c.Layers * c.Heads), rows: int64(c.Layers * c.KVHeads)}
	if c.Window == 0 {
		m.prefill, m.decode = r.Policy().Spec().DenseIn()
	}
	if !r.Replays() {
		m.Meter, m.watch = r.Meter(), r.Time()
	}
	return m
}

// take is what a sequence in a slot has read for rows behind which its past ends, in a decode step or not,
// and whether that is known.
func (m *meter) take(decode bool, slot, end, rows int) (engine.Reads, bool) {
	if m.Meter != nil {
		return m.Take(slot), true
	}
	past := int64(past(end, rows))
	r := engine.Reads{Pairs: m.queries * past, Selected: m.queries * past, Past: m.rows * past, K: m.rows * past, V: m.rows * past}
	return r, decode && m.decode || !decode && m.prefill
}

// past is the positions that causal attention reads for the last rows of a sequence.
func past(end, rows int) int { return rows*end - rows*(rows-1)/2 }

// count counts a pass of so many rows of each of some requests.
func (l *lane) count(start time.Time, decode bool, rows int, tasks ...*task) {
	p := Pass{Decode: decode, Rows: rows * len(tasks), Took: time.Since(start), Counted: true}
	for _, t := range tasks {
		r, known := l.meter.take(decode, t.seq.Slot(), t.seq.Len(), rows)
		p.Past += past(t.seq.Len(), rows)
		p.Counted = p.Counted && known
		p.Reads.Add(r)
		sum, unknown := &t.result.PrefillReads, &t.result.PrefillUnknown
		if decode {
			sum, unknown = &t.result.DecodeReads, &t.result.DecodeUnknown
		}
		sum.Add(r)
		*unknown = !known
	}
	if w := l.meter.watch; w != nil {
		times := w.Prefill
		if decode {
			times = w.Decode
		}
		p.Select, p.Attend = times.Select, times.Attend
		w.Reset()
	}
	l.s.conf.Observe.Pass(l.attn, p)
}
