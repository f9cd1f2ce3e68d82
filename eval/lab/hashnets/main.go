// Hashnets writes networks of the published shape for --attn hashattention with
// random weights: from each query head's dim over two hidden layers as wide to 32
// bits. They are for measuring speed. What they select means nothing.
//
//	go run ./eval/lab/hashnets MODEL.gguf DIR
package main

import (
	"errors"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/gollm/gollm/internal/npy"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/weights"
)

// bits of a signature.
const bits = 32

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: hashnets MODEL.gguf DIR")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// run writes the networks for a model into a folder.
func run(path, dir string) error {
	f, err := weights.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := model.ReadConfig(f, model.RopeOptions{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	widths := []int{c.HeadDim, c.HeadDim, c.HeadDim, bits}
	for _, side := range []string{"query", "key"} {
		for l := range len(widths) - 1 {
			in, out := widths[l], widths[l+1]
			name := filepath.Join(dir, fmt.Sprintf("%s.%d.", side, l))
			err := errors.Join(
				write(rng, name+"weight.npy", in, c.Layers, c.Heads, in, out),
				write(rng, name+"bias.npy", in, c.Layers, c.Heads, out),
			)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes an array of normal numbers, of variance 1/in.
func write(rng *rand.Rand, path string, in int, shape ...int) error {
	n := 1
	for _, d := range shape {
		n *= d
	}
	a := npy.Array{Shape: shape, Data: make([]float32, n)}
	for i := range a.Data {
		a.Data[i] = float32(rng.NormFloat64() / math.Sqrt(float64(in)))
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(npy.Write(f, &a), f.Close())
}
