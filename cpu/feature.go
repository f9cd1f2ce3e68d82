package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// queryFeatureSample replaces the queries of each row by estimates.
func (o *ops) queryFeatureSample(dst, q device.Tensor, kv device.KV, f device.QueryFeatures) {
	const op = "QueryFeatureSample"
	heads, dim, group := q.Dim(1), q.Dim(2), 1
	if f.Mean {
		group = heads / kv.K.Dim(1)
	}
	out, in, requests := f32s(dst), f32s(q), requestsOf(f.Requests)
	o.eachRow(op, kv, q.Dim(0), func(r, slot, _, p int) {
		d := addressed(f.Draw, requests, slot)
		d.Pos, d.Purpose = uint32(p), rng.ForFeatures
		for set := range heads / group {
			d.Head = uint32(set)
			at, n := (r*heads+set*group)*dim, group*dim
			estimateFeatures(out[at:at+n], in[at:at+n], dim, f, func(t, i int) float64 {
				return float64(d.Uniform(uint32(t*dim + i)))
			})
		}
	})
}

// estimateFeatures estimates the queries of a group of heads, [heads, dim]. u is
// the random number of a draw and a feature.
func estimateFeatures(dst, q []float32, dim int, f device.QueryFeatures, u func(draw, feature int) float64) {
	norm := 0.0
	for i := range dim {
		norm = max(norm, meanSize(q, i, dim))
	}
	for i := range dim {
		size, hits := meanSize(q, i, dim), 0
		for t := range f.Draws {
			x := u(t, i)
			if f.Strata {
				x = (float64(t) + x) / float64(f.Draws)
			}
			if x < size/norm { // never where the norm is 0
				hits++
			}
		}
		estimate := 0.0 // over the size itself
		if hits > 0 {
			estimate = norm * float64(hits) / float64(f.Draws) / size
		}
		for h := i; h < len(q); h += dim {
			dst[h] = float32(estimate * float64(q[h]))
		}
	}
}

// meanSize is the mean over heads of the size of feature i.
func meanSize(q []float32, i, dim int) float64 {
	var sum float64
	for h := i; h < len(q); h += dim {
		sum += math.Abs(float64(q[h]))
	}
	return sum / float64(len(q)/dim)
}

// requestsOf is the requests of slots, nil where the tensor is absent.
func requestsOf(t device.Tensor) []int32 {
	if t.Absent() {
		return nil
	}
	return i32s(t)
}

// addressed is the address of the draws of a slot.
func addressed(d rng.Address, requests []int32, slot int) rng.Address {
	if requests != nil {
		d.Request = uint32(requests[slot])
	}
	return d
}
