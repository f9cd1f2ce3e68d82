// What Go calls of the emulator.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
	unsigned x, y, z;   // blocks
	unsigned threads;   // of a block
	unsigned together;  // blocks in z that run together; 0 is one
	size_t shared;      // bytes of dynamic shared memory
	size_t declared;    // bytes of shared memory that the kernel declares on a GPU
	uint64_t seed;      // of the order of threads and blocks; 0 is their own order
} emu_grid;

// emu_find is the kernel called name, NULL if there is none, emu_threads the most threads
// of a block of it, and emu_name the name of number i of all kernels, NULL behind the last.
void* emu_find(const char* name);
int emu_threads(void* kernel);
const char* emu_name(int i);

// emu_launch runs a kernel. It returns NULL, or what was wrong.
const char* emu_launch(void* kernel, const uint64_t* words, size_t n, emu_grid grid);

#ifdef __cplusplus
}
#endif
