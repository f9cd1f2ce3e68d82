package main

import (
	"regexp"
	"testing"
)

func TestDevices(t *testing.T) {
	if out := ok(t, "", "devices"); !regexp.MustCompile(`(?m)^cpu\tcpu \(\d+ threads?, `).MatchString(out) {
		t.Errorf("%q", out)
	}
}
