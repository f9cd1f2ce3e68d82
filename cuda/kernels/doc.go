// Package kernels holds the kernels of package cuda: the sources, and what is
// built from them.
//
// With the build tag cuda, [Image] is the fat binary that nvcc made of them
// (make cuda). With the tag cudaemu they are compiled by the C++ compiler
// against emu/emu.h, and [Find] and [Kernel.Launch] run them on the CPU, so that
// the tests of package cuda need no GPU. Without a tag the package is empty.
//
// The rules of a kernel:
//
//  1. It is declared with KERNEL and takes one struct whose fields are 8 bytes
//     wide, which package cuda fills as an array of words.
//  2. It starts with what it computes, its shapes and which thread does what, and
//     names the Go function that defines it.
//  3. The order of every sum of floats is fixed. Atomics are for integers.
//  4. What is wrong with the data is reported through the Failure of args.cuh.
//
// Start reading at gpu.cuh, then args.cuh, then rows.cu.
package kernels
