// Package cuda runs package device's operations on an NVIDIA GPU. It registers
// itself under the name "cuda".
//
// It is in a binary that was built with the tag cuda (make cuda), which needs a C
// compiler and CUDA's headers; the driver is looked for when the program starts,
// so that such a binary runs on machines without one too. With the tag cudaemu
// the same kernels run on the CPU, for tests. Without a tag the package is empty.
//
// The few types: dev is the device; a driver is what runs kernels, the GPU's
// (driver_cuda.go) or the emulator (driver_emu.go); a call is a kernel with the
// arguments it is being given; ops are the operations, each of which checks its
// tensors and makes a call or two.
//
// All work is queued on one stream, in order. Nothing waits but Read, Sync and
// Close. What is wrong with data is found by the kernels and reported by Sync.
//
// Start reading at cuda.go, then call.go, then math.go; then package kernels.
package cuda
