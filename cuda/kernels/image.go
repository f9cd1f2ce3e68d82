//go:build cuda && !cudaemu

package kernels

import _ "embed"

// Image is the fat binary of all kernels: machine code for compute capability
// 8.0, 8.9 and 9.0, and PTX that a driver compiles for newer ones.
//
//go:embed kernels.fatbin
var Image string
