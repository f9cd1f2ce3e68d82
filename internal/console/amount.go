package console

import (
	"fmt"
	"math"
	"time"
)

// SizeText writes a number of bytes, for example "4.58 GiB".
func SizeText(bytes int64) string {
	const step = 1024
	if bytes < step {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if value /= step; value < step {
			break
		}
	}
	return fmt.Sprintf("%s %s", ThreeDigits(value), unit)
}

// CountText writes a large number, for example "8.03 B".
func CountText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}} {
		if n >= u.size {
			return ThreeDigits(float64(n)/float64(u.size)) + " " + u.name
		}
	}
	return fmt.Sprint(n)
}

// RateText is " at 59.1 tok/s", and "" where nothing was measured.
func RateText(perSecond float64) string {
	if perSecond <= 0 || math.IsInf(perSecond, 0) || math.IsNaN(perSecond) {
		return ""
	}
	return " at " + ThreeDigits(perSecond) + " tok/s"
}

// TimeText writes a duration at a length that reads well.
func TimeText(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%s ms", ThreeDigits(float64(d)/float64(time.Millisecond)))
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// ThreeDigits writes a number with three digits that count, more where they
// stand before the point.
func ThreeDigits(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// Plural is "1 token", "2 tokens".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Round3 keeps three decimals: more are noise in a JSON figure.
func Round3(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return math.Round(x*1000) / 1000
}
