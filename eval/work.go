package eval

import (
	"strings"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/weights"
)

// Work is what a prefill or a decode step cannot do without: the bytes that it
// must read from memory at least once, and the operations of its products, a
// multiplication with its addition counted as two.
type Work struct {
	Bytes    float64
	IntOps   float64 // products with quantized weights
	FloatOps float64 // products with other weights, and attention
}

// Limit is the roofline: the least time, in seconds, that hardware with these peaks needs, and
// what bounds it, memory or compute; 0 where the peaks are unknown.
func (w Work) Limit(p device.Roofline) (seconds float64, bound string) {
	if p.Read <= 0 || p.Int8 <= 0 || p.Float <= 0 {
		return 0, ""
	}
	read, compute := w.Times(p)
	if read > compute {
		return read, "memory"
	}
	return compute, "compute"
}

// Times are the seconds that hardware with these peaks reads and computes for.
func (w Work) Times(p device.Roofline) (read, compute float64) {
	return w.Bytes / p.Read, w.IntOps/p.Int8 + w.FloatOps/p.Float
}

// plus is the work of both.
func (w Work) plus(o Work) Work {
	return Work{w.Bytes + o.Bytes, w.IntOps + o.IntOps, w.FloatOps + o.FloatOps}
}

// Budget knows the work of one model.
type Budget struct {
	config  model.Config
	kvSize  int  // bytes of an element of the cache
	layers  Work // of one token through all layers, attention aside
	output  Work // of the logits of one token
	perItem float64
}

// NewBudget counts the tensors of a file. A step reads every tensor once, but of
// the embedding only the row of its token, unless the embedding is the output
// matrix too.
func NewBudget(f *weights.File, c model.Config, kv device.DType) Budget {
	b := Budget{config: c, kvSize: kv.BlockSize()}
	tied := !f.HasTensor("output.weight")
	for _, t := range f.Tensors() {
		switch {
		case t.Name == "token_embd.weight":
			b.perItem = float64(len(t.Data)) / float64(max(t.Shape[0], 1))
			if tied {
				b.output.add(t)
			}
		case strings.HasPrefix(t.Name, "output"):
			b.output.add(t)
		default:
			b.layers.add(t)
		}
	}
	return b
}

// add counts a tensor that is read once and, if it is a matrix, multiplied with
// one row.
func (w *Work) add(t weights.Tensor) {
	w.Bytes += float64(len(t.Data))
	switch ops := 2 * float64(t.Len()); {
	case len(t.Shape) < 2:
	case t.DType.Quantized():
		w.IntOps += ops
	default:
		w.FloatOps += ops
	}
}

// Share is the part of the cache that an attention reads; dense attention is
// [Everything].
type Share struct {
	Density float64 // of the pairs of query and key
	K, V    float64 // of the rows of keys and of values
}

// Everything is what dense attention reads.
var Everything = Share{1, 1, 1}

// Decode is the work of a step of so many sequences, each after depth tokens:
// all of it, and its attention alone.
func (b Budget) Decode(depth, batch int, read Share) (all, attention Work) {
	n := float64(batch)
	attention = b.attention(n*b.seen(depth), n*b.seen(depth), read)
	return Work{
		Bytes:    b.layers.Bytes + b.output.Bytes + n*b.perItem,
		IntOps:   n * (b.layers.IntOps + b.output.IntOps),
		FloatOps: n * (b.layers.FloatOps + b.output.FloatOps),
	}.plus(attention), attention
}

// Prefill is the work of n tokens in an empty cache with the logits of the last:
// each weight is read once, and each row of the cache that any token reads.
func (b Budget) Prefill(n int, read Share) (all, attention Work) {
	var seen float64
	for pos := range n {
		seen += b.seen(pos)
	}
	tokens := float64(n)
	attention = b.attention(seen, 0, read) // the rows of the cache come from the tokens themselves
	return Work{
		Bytes:    b.layers.Bytes + b.output.Bytes + tokens*b.perItem,
		IntOps:   tokens*b.layers.IntOps + b.output.IntOps,
		FloatOps: tokens*b.layers.FloatOps + b.output.FloatOps,
	}.plus(attention), attention
}

// seen is the positions that the token after pos others reads, its own included.
func (b Budget) seen(pos int) float64 {
	if w := b.config.Window; w > 0 {
		return float64(min(pos+1, w))
	}
	return float64(pos + 1)
}

// attention is the work of queries that see so many positions in all, of which
// so many rows are fetched: a product with the keys and one with the values.
func (b Budget) attention(seen, rows float64, read Share) Work {
	c := b.config
	return Work{
		Bytes:    rows * float64(c.KVBytes(b.kvSize)) * (read.K + read.V) / 2,
		FloatOps: 4 * seen * read.Density * float64(c.Layers*c.Heads*c.HeadDim),
	}
}
