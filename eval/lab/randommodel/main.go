// Command randommodel writes a GGUF file of a known shape with random weights, to
// measure speed and memory where nobody has the real weights:
//
//	go run ./eval/lab/randommodel -shape llama-3.1-8b -type q4_k_m -o model.gguf
//
// How such a model is made: package model/randommodel.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/gollm/gollm/model/randommodel"
)

func main() {
	var o randommodel.Options
	flag.StringVar(&o.Shape, "shape", "llama-3.1-8b", "one of "+strings.Join(randommodel.Shapes(), ", "))
	flag.StringVar(&o.Type, "type", "q4_k_m", "one of "+strings.Join(randommodel.Types(), ", ")+"; q4_k_m has some matrices in Q6_K")
	flag.IntVar(&o.Layers, "layers", 0, "layers, instead of the shape's")
	flag.Uint64Var(&o.Seed, "seed", 1, "of the weights")
	flag.BoolVar(&o.Unpack, "unpack", false, "write what the weights of the type stand for, as F32")
	out := flag.String("o", "", "the file (required)")
	flag.Parse()
	if err := run(o, *out); err != nil {
		fmt.Fprintln(os.Stderr, "randommodel:", err)
		os.Exit(1)
	}
}

func run(o randommodel.Options, out string) error {
	if out == "" {
		return fmt.Errorf("no file: name one with -o FILE")
	}
	w, err := randommodel.Make(o)
	if err != nil {
		return err
	}
	return w.WriteFile(out)
}
