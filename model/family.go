package model

import (
	"fmt"
	"slices"
	"strings"
)

// family is what the models of an architecture have beyond Llama's.
type family struct {
	arch   string // general.architecture
	models string // some of them, for people

	halves    bool // RoPE rotates elements i and i + Dims/2 of a head, not 2i and 2i + 1
	bias      bool // the projections of q, k and v add one
	headNorms bool // each head of q and of k is normalized before it is rotated
}

// families are the architectures that this package computes.
var families = []family{
	{arch: "llama", models: "Llama 2 and 3, Mistral 7B and their fine-tunes"},
	{arch: "qwen2", models: "Qwen2, Qwen2.5, R1-Distill-Qwen", halves: true, bias: true},
	{arch: "qwen3", models: "dense Qwen3", halves: true, headNorms: true},
}

// findFamily is the family of an architecture.
func findFamily(arch string) (family, bool) {
	i := slices.IndexFunc(families, func(f family) bool { return f.arch == arch })
	if i < 0 {
		return family{}, false
	}
	return families[i], true
}

// supported names the families, for people.
func supported() string {
	var all []string
	for _, f := range families {
		all = append(all, fmt.Sprintf("%s (%s)", f.arch, f.models))
	}
	return strings.Join(all, ", ")
}
