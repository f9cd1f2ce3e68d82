package weights_test

import (
	"fmt"

	"github.com/gollm/gollm/weights"
)

func Example() {
	var w weights.Writer
	w.Set("general.architecture", "llama")
	w.Set("llama.block_count", 2)
	w.AddF32("output_norm.weight", []float32{1, 1, 1, 1}, 4)
	file, err := w.Bytes()
	if err != nil {
		fmt.Println(err)
		return
	}

	f, err := weights.Parse("tiny.gguf", file) // from disk: weights.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	blocks, err := f.Uint("llama.block_count")
	fmt.Println(blocks, err)
	norm, err := f.Expect("output_norm.weight", 4)
	fmt.Println(norm, err)
	_, err = f.Expect("output_norm.weight", 8)
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// output_norm.weight F32 [4] <nil>
	// weights: tiny.gguf: tensor "output_norm.weight" is F32 [4], want shape [8]
}
