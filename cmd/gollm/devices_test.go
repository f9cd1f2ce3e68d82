package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

func TestDevices(t *testing.T) {
	if out := ok(t, "", "devices"); !regexp.MustCompile(`(?m)^cpu\tcpu \(\d+ threads?, `).MatchString(out) {
		t.Errorf("%q", out)
	}
}

// TestWithoutCUDA: a build for the CPU says where the other one comes from.
func TestWithoutCUDA(t *testing.T) {
	if slices.Contains(device.Names(), "cuda") {
		t.Skip("this build has CUDA")
	}
	for _, name := range []string{"cuda", "cuda:1"} {
		fails(t, console.ExitUsage, []string{`--device "` + name + `"`, "make cuda", "docs/cuda.md"}, "", "generate", "-m", clitest.RandomModel(t, modeltest.Shape{}), "-p", "a", "--device", name)
	}
}
