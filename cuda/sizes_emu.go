//go:build cudaemu

package cuda

import (
	_ "embed"
	"fmt"
	"strings"
)

// size is the resources of a kernel on a GPU.
type size struct {
	static    int // bytes of static shared memory per block
	registers int // per thread
}

// sizesText has a line for each kernel: its name, and its static shared memory in bytes and
// registers for compute capability 8.0, 8.9 and 9.0. make test-driver compares it with the fat
// binary, and writes build/cuda/sizes.txt if that has other numbers.
//
//go:embed kernels/sizes.txt
var sizesText string

// readSizes reads the sizes of all kernels for a compute capability.
func readSizes(major, minor int) (map[string]size, error) {
	column := 0
	switch {
	case major >= 9:
		column = 2
	case minor >= 9:
		column = 1
	}
	all := map[string]size{}
	for line := range strings.Lines(sizesText) {
		var name string
		var s [3]size
		if _, err := fmt.Sscan(line, &name, &s[0].static, &s[0].registers, &s[1].static, &s[1].registers, &s[2].static, &s[2].registers); err != nil {
			return nil, fmt.Errorf("kernels/sizes.txt: %q: %w", line, err)
		}
		all[name] = s[column]
	}
	return all, nil
}
