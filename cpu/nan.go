package cpu

// A score that is NaN counts as -Inf wherever positions are selected or sampled. The device
// counts them.

// NaNScores is how many scores were NaN so far.
func (d *dev) NaNScores() (int64, error) { return d.nans.Load(), nil }

// sawNaNs adds a count of scores that were NaN, and clears it.
func (d *dev) sawNaNs(n *int) {
	if *n > 0 {
		d.nans.Add(int64(*n))
		*n = 0
	}
}

// countNaNs counts the scores of a row that are NaN.
func (o *ops) countNaNs(scores []float32) {
	nans := 0
	for _, x := range scores {
		if x != x {
			nans++
		}
	}
	o.d.sawNaNs(&nans)
}
