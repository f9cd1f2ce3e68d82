package sparse

// SketchBasis is the projection of a sketch.
var SketchBasis = sketchBasis

// Quantile is the number of standard deviations of vattention's eps.
func Quantile(guarantee, z string, delta float64) float64 {
	return vattentionOptions{Guarantee: guarantee, Z: z, Delta: delta}.quantile()
}

// Normals is the planes of magicpig's codes.
var Normals = normals

// Observes reports whether a method of the policy sees the queries and keys of every pass.
func (c *Policy) Observes() bool { return len(c.observers) > 0 }
