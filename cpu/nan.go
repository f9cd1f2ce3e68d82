package cpu

// A score that is not a number counts as -Inf wherever positions are chosen,
// compared or drawn by scores. Here is how many there were.

// NaNScores is how many scores that were not numbers the ops have met.
func (d *dev) NaNScores() (int64, error) { return d.nans.Load(), nil }

// sawNaNs adds a count of scores that were not numbers, and clears it.
func (d *dev) sawNaNs(n *int) {
	if *n > 0 {
		d.nans.Add(int64(*n))
		*n = 0
	}
}

// countNaNs counts the scores of a row that are not numbers.
func (o *ops) countNaNs(scores []float32) {
	nans := 0
	for _, x := range scores {
		if x != x {
			nans++
		}
	}
	o.d.sawNaNs(&nans)
}
