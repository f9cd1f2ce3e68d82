package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gollm/gollm/internal/openmodel"
)

// lengths is a flag of numbers of tokens: "512,8k"; "0" alone is none.
type lengths []int

// Set reads the numbers.
func (l *lengths) Set(text string) error {
	*l = nil
	if text == "0" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, ok := openmodel.TokenCount(part)
		if !ok || n > openmodel.MaxContext/2 {
			return fmt.Errorf("%q is no number of tokens; want for example 512,8k", part)
		}
		*l = append(*l, n)
	}
	return nil
}

// String is the numbers as Set reads them.
func (l *lengths) String() string {
	if len(*l) == 0 {
		return "0"
	}
	var parts []string
	for _, n := range *l {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ",")
}

// Type is how help names a value.
func (*lengths) Type() string { return "lengths" }
