package main

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
)

// torch times PyTorch's attention on tensors of the shapes that rows were measured
// with, and puts the ratios beside them.
func (r *report) torch(ctx context.Context, rows []*row) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return errors.New("python3 is not installed")
	}
	if _, err := output(ctx, "", python, "-c", "import torch; assert torch.cuda.is_available()"); err != nil {
		return errors.New("python3 has no torch that finds a GPU")
	}
	if r.small {
		return errors.New("the small models have other shapes")
	}
	out, err := output(ctx, "", python, "scripts/gpu-report-torch.py")
	if err != nil {
		return err
	}
	var figures struct {
		Version string             `json:"version"`
		MS      map[string]float64 `json:"ms"` // of a layer
	}
	if err := json.Unmarshal(out, &figures); err != nil {
		return err
	}
	r.about.Torch = figures.Version
	rows[0].set(figures.MS["prefill-32k"], "ms")
	rows[0].How = "a layer of Llama-3.1-8B, a prompt of 32k tokens, torch " + figures.Version
	r.torchMS = figures.MS
	return nil
}

// layers is those of the models of full size, whose rows stand beside PyTorch's.
const layers = 32

// besideTorch puts the ratio beside a row of the attention of n layers, which takes ms.
func (r *report) besideTorch(w *row, shape string, n int, ms float64) {
	if t := r.torchMS[shape]; t > 0 && ms > 0 {
		w.Torch = t * float64(n) / ms
	}
}
