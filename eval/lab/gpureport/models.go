package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// modelSpec is what randommodel is told.
type modelSpec struct {
	shape, mix string
	layers     int  // 0 is all
	plain      bool // F32, of the weights of the type
}

func (m modelSpec) String() string {
	text := m.shape + " " + strings.ToUpper(m.mix)
	if m.layers > 0 {
		text += fmt.Sprintf(" of %d layers", m.layers)
	}
	if m.plain {
		text += " in F32"
	}
	return text
}

// making is a model that is being written.
type making struct {
	path string
	done chan struct{}
	err  error
}

// models are those that parts want, in the order in which they do.
func (r *report) models(parts []string) []modelSpec {
	agree, dense, decode, prefill := agreement, "decode and prefill", "sparse decode", "sparse prefill"
	var some []modelSpec
	for _, m := range []struct {
		modelSpec
		parts []string
	}{
		{modelSpec{"llama-3.1-8b", "q4_k_m", 4, false}, []string{agree, everyMethod}}, {modelSpec{"mistral-7b", "q4_k_m", 4, false}, []string{agree}},
		{modelSpec{"llama-3.1-8b", "f16", 4, false}, []string{agree, prefill}}, {modelSpec{"mistral-7b", "f16", 4, false}, []string{agree}},
		{modelSpec{"mistral-7b", "q4_k_m", 4, true}, []string{agree}},
		{modelSpec{"llama-3.1-8b", "f16", 0, false}, []string{dense, "interrupt", decode, prefill, prefixCache, served}},
		{modelSpec{"llama-3.1-8b", "q8_0", 0, false}, []string{dense, batches, sparseSteps, sparseBatches}},
		{modelSpec{"llama-3.1-8b", "q4_k_m", 0, false}, []string{dense, families, everyMethod}},
		{modelSpec{"qwen2.5-7b", "q4_k_m", 0, false}, []string{families}}, {modelSpec{"qwen3-8b", "q4_k_m", 0, false}, []string{families}},
		{modelSpec{"llama-2-7b", "f16", 0, false}, []string{decode}}, {smallMethods, []string{everyMethod}},
	} {
		if m.modelSpec == smallMethods && !r.small {
			continue
		}
		wanted := slices.ContainsFunc(m.parts, func(part string) bool { return slices.Contains(parts, part) })
		if own := r.like(m.modelSpec); wanted && !slices.Contains(some, own) {
			some = append(some, own)
		}
	}
	return some
}

// smallMethods is the small model of heads as wide as those of Llama-3.1-8B.
var smallMethods = modelSpec{"tiny-128", "q8_0", 0, false}

// like is the model to take for one of full size.
func (r *report) like(m modelSpec) modelSpec {
	if r.small && m != smallMethods {
		return modelSpec{shape: "tiny", mix: m.mix, plain: m.plain}
	}
	return m
}

// makeModels begins to write the models of parts, two at a time.
func (r *report) makeModels(ctx context.Context, parts []string) {
	r.made = map[string]*making{}
	turns := make(chan struct{}, 2)
	for i, m := range r.models(parts) {
		made := &making{path: filepath.Join(r.folder, fmt.Sprintf("%d.gguf", i)), done: make(chan struct{})}
		r.made[m.String()] = made
		args := []string{"-shape", m.shape, "-type", m.mix, "-layers", fmt.Sprint(m.layers), fmt.Sprintf("-unpack=%v", m.plain), "-o", made.path}
		go func() {
			defer close(made.done)
			turns <- struct{}{}
			defer func() { <-turns }()
			if out, err := exec.CommandContext(ctx, r.bin.models, args...).CombinedOutput(); err != nil {
				made.err = fmt.Errorf("no model %v: %w %s", m, err, firstLine(out))
			}
		}()
	}
}

// model waits for a model and is its path.
func (r *report) model(ctx context.Context, m modelSpec) (string, error) {
	made, ok := r.made[r.like(m).String()]
	if !ok {
		return "", fmt.Errorf("no model %v is made", m)
	}
	select {
	case <-made.done:
		return made.path, made.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// roomiest is the folder for temporary files, or the one in memory where that has
// room for all models and the machine the memory.
func roomiest() string {
	const folder, need = "/dev/shm", 55 << 30
	var s syscall.Statfs_t
	if runtime.GOOS == "linux" && syscall.Statfs(folder, &s) == nil && s.Bavail*uint64(s.Bsize) > 2*need {
		return folder
	}
	return os.TempDir()
}

// firstLine is the first line of an output that says something.
func firstLine(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}
