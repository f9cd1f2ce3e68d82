package device

// Features says how the features of a query are sampled. Feature i of a query q
// is hit by a draw with probability |q_i|/norm, norm being its largest size, and
// becomes norm·sign(q_i)·hits/Draws. The mean over draws is q. Features that no
// draw hits are zero, and need not be read of the keys.
type Features struct {
	Draw  Draw   // Seed, Request and Layer; the rest is filled in for each row and head
	Of    Tensor // i32 [slots]: the Request of each slot; absent is that of Draw for all
	Draws int    // at least 1
	// Strata counts a hit where (t + u)/Draws is below the probability, t being
	// the number of the draw; otherwise where u is.
	Strata bool
	// Mean draws for the heads of a kv head together, by the mean of their sizes;
	// each head's feature is then its own times the estimate over that mean.
	Mean bool
}

// FeatureSampler draws the features of queries that are read, in proportion to
// their sizes.
type FeatureSampler interface {
	// SampleFeatures replaces the queries of each row by estimates; a query of
	// zeros stays one. Numbers are addressed by the row's position, the head (with
	// Mean, the kv head), and ForFeatures: draw t of feature i has number
	// t·dim + i. dst, q f32 [rows, heads, dim]; dst is not q.
	SampleFeatures(dst, q Tensor, kv KV, f Features)
}

// CheckFeatures panics unless the arguments of SampleFeatures fit together.
func CheckFeatures(dst, q Tensor, kv KV, f Features) {
	const op = "SampleFeatures"
	checkHeadsOf(op, q, kv)
	CheckShape(op, "dst", dst, F32, q.Dim(0), q.Dim(1), q.Dim(2))
	CheckRequests(op, f.Of, kv)
	RowsPerSlot(op, q.Dim(0), kv)
	if f.Draws < 1 {
		Check(false, op, "%d draws, want at least 1", f.Draws)
	}
}
