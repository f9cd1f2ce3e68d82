//go:build cuda || cudaemu

package devtest

// Device is the name of the device that tests of other packages run on: the
// GPU, real or emulated, where it is built in.
const Device = "cuda"
