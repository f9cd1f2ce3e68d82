package recite

import (
	"encoding/csv"
	"fmt"
	"io"

	"github.com/gollm/gollm/eval/metric"
)

// maxPoints is how many points a curve has at most.
const maxPoints = 16

// Point is the lines of a part of the list.
type Point struct {
	From, To int             // lines, from 0; To is the first that is not of it
	Step     float64         // the mean decode step before them
	Right    metric.Interval // the share that is right; N counts lines of all answers
}

// Curve is the share of right lines along the list, over answers to lists of equal length,
// with intervals of a bootstrap.
func Curve(answers []Answer) []Point {
	if len(answers) == 0 {
		return nil
	}
	lines := len(answers[0].Truth)
	n := min(maxPoints, lines)
	points := make([]Point, n)
	for k := range points {
		p := &points[k]
		p.From, p.To = k*lines/n, (k+1)*lines/n
		var scores []float64
		for i := range answers {
			a := &answers[i]
			if len(a.Truth) != lines {
				continue
			}
			right := a.Right()
			for at := p.From; at < p.To; at++ {
				x := 0.0
				if right[at] {
					x = 1
				}
				scores = append(scores, x)
				p.Step += float64(a.Steps[at])
			}
		}
		p.Step /= float64(len(scores))
		p.Right = metric.Bootstrap(scores, metric.Draws, curveSeed)
	}
	return points
}

// curveSeed is that of the bootstrap.
const curveSeed = 42

// WriteCSV writes a curve with a row for each point; lines count from 1.
func WriteCSV(w io.Writer, points []Point) error {
	out := csv.NewWriter(w)
	if err := out.Write([]string{"first_line", "last_line", "decode_step", "lines", "right", "low", "high"}); err != nil {
		return err
	}
	for _, p := range points {
		if err := out.Write([]string{
			fmt.Sprint(p.From + 1), fmt.Sprint(p.To), fmt.Sprintf("%.1f", p.Step), fmt.Sprint(p.Right.N),
			fmt.Sprintf("%.4f", p.Right.Mean), fmt.Sprintf("%.4f", p.Right.Low), fmt.Sprintf("%.4f", p.Right.High),
		}); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
