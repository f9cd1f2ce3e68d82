package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// agreementModels are what the CPU and the GPU compute.
var agreementModels = []modelSpec{{"llama-3.1-8b", "q4_k_m", 4, false}, {"llama-3.1-8b", "f16", 4, false}, {"mistral-7b", "f16", 4, false}, {"mistral-7b", "q4_k_m", 4, false}}

// unpackedModel has the weights of the last of them as F32: what both are an
// approximation of. The CPU rounds activations to 8 bits where weights are quantized.
var unpackedModel = modelSpec{"mistral-7b", "q4_k_m", 4, true}

// agreementRows are a row for each of them.
func (r *report) agreementRows() []*row {
	var rows []*row
	for _, m := range agreementModels {
		rows = append(rows, &row{What: "logits after 4k tokens, relative to the CPU's", How: m.String(), Aim: atMost(1e-2)})
	}
	how := agreementModels[len(agreementModels)-1].String()
	return append(rows, &row{What: "the CPU's logits, relative to those of the same weights in F32", How: how},
		&row{What: "the GPU's logits, relative to those of the same weights in F32", How: how, Aim: atMost(1e-2)})
}

// agree compares the logits of both after a prompt.
func (r *report) agree(ctx context.Context, rows []*row) error {
	n, vocab := 4096, 32768
	if r.small {
		n, vocab = 80, 320
	}
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = rng.IntN(vocab)
	}
	raw, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	prompt := filepath.Join(r.folder, "ids.json")
	if err := os.WriteFile(prompt, raw, 0o666); err != nil {
		return err
	}
	var last [2][]float32
	for i, m := range agreementModels {
		path, err := r.model(ctx, m)
		if err != nil {
			rows[i].Unmeasured = err.Error()
			continue
		}
		var sides [2][]float32
		for k, device := range []string{"cpu", r.device} {
			if sides[k], err = r.lastLogits(ctx, path, prompt, device); err != nil {
				break
			}
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err != nil {
			rows[i].Unmeasured = err.Error()
			continue
		}
		rows[i].set(distance(sides[1], sides[0]), "")
		last = sides
	}
	path, err := r.model(ctx, unpackedModel)
	if err != nil {
		return err
	}
	exact, err := r.lastLogits(ctx, path, prompt, "cpu")
	if err != nil {
		return err
	}
	for k, side := range last {
		if len(side) > 0 && rows[len(agreementModels)-1].Unmeasured == "" {
			rows[len(agreementModels)+k].set(distance(side, exact), "")
		}
	}
	return nil
}

// lastLogits are those after a prompt on a device.
func (r *report) lastLogits(ctx context.Context, model, prompt, device string) ([]float32, error) {
	out, err := output(ctx, "", r.bin.gollm, "logits", "-m", model, "--device", device, "--tokens", prompt, "--last", "-o", "-")
	if err != nil {
		return nil, err
	}
	x := make([]float32, len(out)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(out[4*i:]))
	}
	if len(x) == 0 {
		return nil, fmt.Errorf("no logits on %s", device)
	}
	return x, nil
}

// distance is the length of a less b, as a share of b's; NaN is infinitely far.
func distance(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.MaxFloat64
	}
	var off, size float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		off += d * d
		size += float64(b[i]) * float64(b[i])
	}
	x := math.Sqrt(off / size)
	if x-x != 0 { // NaN or infinite
		return math.MaxFloat64
	}
	return x
}
