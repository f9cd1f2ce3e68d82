// Package kernels holds the CUDA kernels of package cuda: the sources, and what is
// built from them.
//
// With the build tag cuda, [Image] is the fat binary that nvcc made of kernels.cu
// (make cuda). With the tag cudaemu a C++ compiler builds the same sources against
// emu/emu.h, and [Find] and [Kernel.Launch] run them on the CPU, so that the tests of
// package cuda need no GPU. Without a tag the package is empty.
//
// The emulator's build has three units, attend_emu.cpp, matmul_emu.cpp and
// select_emu.cpp. A unit for each kernel file compiled the templates of the shared
// headers 32 times (54 s of processor time instead of 40); a single one would leave the
// second core idle.
//
// The rules of a kernel:
//
//  1. It is declared with KERNEL and takes one struct of 8-byte fields, which package
//     cuda fills as an array of words.
//  2. Its comment says what it computes (formula, shapes, types), how it maps to grid,
//     block, cluster and shared memory, and what bounds it; it names the Go function
//     that is its reference.
//  3. The order of every floating-point sum is fixed. Atomics are for integers.
//  4. Invalid data is reported through the Failure of args.cuh.
//
// Start reading at gpu.cuh, then args.cuh, then rows.cu.
package kernels
