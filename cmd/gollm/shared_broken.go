package main

import (
	"fmt"

	"github.com/gollm/gollm/internal/console"
)

// nanText is a line about scores that were not numbers, empty where there were
// none.
func nanText(n int64) string {
	if n == 0 {
		return ""
	}
	verb := "were"
	if n == 1 {
		verb = "was"
	}
	return fmt.Sprintf("%s %s not a number: a query or a key is broken, and the output is not to be trusted\n", console.Plural(int(n), "score"), verb)
}

// brokenCount counts numbers that are none: NaN, and infinite ones.
type brokenCount struct{ broken, all int }

// add counts the numbers of a slice.
func (c *brokenCount) add(x []float32) {
	c.all += len(x)
	for _, v := range x {
		if v-v != 0 {
			c.broken++
		}
	}
}

// text is a line about what, with the reason; empty where all are numbers.
func (c *brokenCount) text(what, why string) string {
	if c.broken == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d %s are not numbers: %s\n", c.broken, c.all, what, why)
}
