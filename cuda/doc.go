// Package cuda is the backend of package device for NVIDIA GPUs. It registers itself under
// the name "cuda".
//
// The build tag cuda (make cuda) links it, which needs a C compiler and CUDA's headers. The
// driver library is loaded at run time, so the same binary starts on machines without a GPU.
// With the tag cudaemu the same kernels run on the CPU, for tests. Without a tag the package
// is empty.
//
// The few types:
//
//   - dev is the device: its memory and one stream.
//   - driver launches kernels: on the GPU (driver_cuda.go) or in the emulator (driver_emu.go).
//   - ops is the queue. Calls pass through a [fusion.Window], whose patterns (fuse.go) replace
//     sequences of calls by fused kernels; run dispatches every other call by its type, and
//     summarize, score, selectList and sample by their rule.
//   - launch is a kernel with its arguments and its launch attributes.
//   - hazards tracks which tensors are written by kernels that may still be running.
//
// Files are named like those of package device: math, paged, attend, summarize, score, select,
// sample, walk. The matrix products are gemv.go (one row), skinny_wgmma.go and skinny_gemm.go (a
// decode batch) and gemm.go (prefill).
//
// Everything runs on one stream, in order, and only Read, Sync and Close block. Kernels
// report invalid data, such as a page number that is out of range, through a word in device
// memory that Sync reads. Consecutive launches overlap by programmatic dependent launch (PDL).
//
// Start reading at cuda.go, then launch.go and math.go; then package kernels.
package cuda
