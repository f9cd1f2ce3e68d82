package metric

import (
	"math"
	"slices"
)

// Interval is a mean and the 95 % interval of a percentile bootstrap.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	N    int     `json:"n"` // samples
}

// Draws is how many resamples an interval is made of.
const Draws = 10000

// splitMix is SplitMix64, the stream of indices of the bootstrap: the same seed,
// the same interval.
type splitMix uint64

func (s *splitMix) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below is uniform in [0, n).
func (s *splitMix) below(n int) int { return int((s.next() >> 32) * uint64(n) >> 32) }

// Bootstrap is the mean of scores and its interval.
func Bootstrap(scores []float64, draws int, seed uint64) Interval {
	return BootstrapMean([][]float64{scores}, draws, seed)
}

// BootstrapMean is the mean of the means of several tasks and its interval: each
// resample draws inside each task. Tasks without scores are left out.
func BootstrapMean(tasks [][]float64, draws int, seed uint64) Interval {
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(t []float64) bool { return len(t) == 0 })
	if len(tasks) == 0 {
		return Interval{}
	}
	var iv Interval
	for _, t := range tasks {
		iv.Mean += mean(t)
		iv.N += len(t)
	}
	iv.Mean /= float64(len(tasks))
	iv.Low, iv.High = iv.Mean, iv.Mean
	if draws < 1 {
		return iv
	}
	stream := splitMix(seed)
	means := make([]float64, draws)
	for d := range means {
		for _, t := range tasks {
			sum := 0.0
			for range t {
				sum += t[stream.below(len(t))]
			}
			means[d] += sum / float64(len(t))
		}
		means[d] /= float64(len(tasks))
	}
	slices.Sort(means)
	iv.Low = means[int(0.025*float64(draws))]
	iv.High = means[int(math.Ceil(0.975*float64(draws)))-1]
	return iv
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// Paired compares two runs over the same samples.
type Paired struct {
	Difference Interval `json:"difference"` // of b - a
	Win        int      `json:"win"`        // samples in which b is better
	Tie        int      `json:"tie"`
	Loss       int      `json:"loss"`
	// McNemar is the exact two-sided probability of wins and losses as uneven as
	// these where neither run is better. It is about right and wrong: 1 where a
	// score is neither 0 nor 1.
	McNemar float64 `json:"mcnemar"`
	Binary  bool    `json:"binary"` // all scores are 0 or 1
	// Sign is the same probability for any scores, by an exact sign test: samples count as won
	// or lost, by however much.
	Sign float64 `json:"sign"`
}

// Compare pairs the scores of a and b, which are of the same samples in the same
// order; those beyond the shorter list are left out.
func Compare(a, b []float64, draws int, seed uint64) Paired {
	n := min(len(a), len(b))
	p := Paired{McNemar: 1, Binary: true}
	diff := make([]float64, n)
	for i := range diff {
		diff[i] = b[i] - a[i]
		p.Binary = p.Binary && binary(a[i]) && binary(b[i])
		switch {
		case diff[i] > 0:
			p.Win++
		case diff[i] < 0:
			p.Loss++
		default:
			p.Tie++
		}
	}
	p.Difference = Bootstrap(diff, draws, seed)
	p.Sign = SignTest(p.Win, p.Loss)
	if p.Binary {
		p.McNemar = p.Sign
	}
	return p
}

func binary(x float64) bool { return x == 0 || x == 1 }

// SignTest is twice the chance of at most min(win, loss) heads in win+loss throws
// of a coin, at most 1.
func SignTest(win, loss int) float64 {
	n := win + loss
	sum := 0.0
	for k := range min(win, loss) + 1 {
		sum += math.Exp(logChoose(n, k) - float64(n)*math.Ln2)
	}
	return min(1, 2*sum)
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}
