package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// queryFeatureSample replaces the queries of each row by estimates whose unsampled features
// are zero (SANTA's Bernoulli scores).
func (o *ops) queryFeatureSample(c *device.Sample) {
	f, heads, dim, group := c.Features, c.Q.Dim(1), c.Q.Dim(2), 1
	if f.Mean {
		group = heads / c.KV.K.Dim(1)
	}
	out, in, requests := f32s(c.Dst), f32s(c.Q), requestsOf(f.Requests)
	o.eachRow("QueryFeatureSample", c.KV, c.Q.Dim(0), func(r, slot, _, p int) {
		d := addressed(f.Draw, requests, slot)
		d.Pos, d.Purpose = uint32(p), rng.ForFeatures
		for g := range heads / group {
			d.Head = uint32(g)
			at, n := (r*heads+g*group)*dim, group*dim
			estimateFeatures(out[at:at+n], in[at:at+n], dim, f, func(t, i int) float64 {
				return float64(d.Uniform(uint32(t*dim + i)))
			})
		}
	})
}

// estimateFeatures estimates the queries of heads that are sampled with the same draws,
// [heads, dim]. u is the random number of a draw and a feature.
func estimateFeatures(dst, q []float32, dim int, f device.QueryFeatures, u func(draw, feature int) float64) {
	norm := 0.0
	for i := range dim {
		norm = max(norm, meanMagnitude(q, i, dim))
	}
	for i := range dim {
		magnitude, hits := meanMagnitude(q, i, dim), 0
		for t := range f.Draws {
			x := u(t, i)
			if f.Strata {
				x = (float64(t) + x) / float64(f.Draws)
			}
			if x < magnitude/norm { // never where the norm is 0
				hits++
			}
		}
		estimate := 0.0 // as a factor of the feature
		if hits > 0 {
			estimate = norm * float64(hits) / float64(f.Draws) / magnitude
		}
		for h := i; h < len(q); h += dim {
			dst[h] = float32(estimate * float64(q[h]))
		}
	}
}

// meanMagnitude is the mean of |feature i| over heads.
func meanMagnitude(q []float32, i, dim int) float64 {
	var sum float64
	for h := i; h < len(q); h += dim {
		sum += math.Abs(float64(q[h]))
	}
	return sum / float64(len(q)/dim)
}

// requestsOf is the request of each slot, nil where the tensor is absent.
func requestsOf(t device.Tensor) []int32 {
	if t.Absent() {
		return nil
	}
	return i32s(t)
}

// addressed is d with the request of a slot.
func addressed(d rng.Address, requests []int32, slot int) rng.Address {
	if requests != nil {
		d.Request = uint32(requests[slot])
	}
	return d
}
