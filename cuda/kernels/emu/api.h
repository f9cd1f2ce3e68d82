// The interface of the emulator for Go.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
	unsigned x, y, z;   // blocks
	unsigned threads;   // of a block
	unsigned cluster;   // blocks in z of a cluster; 0 is one
	size_t shared;      // bytes of dynamic shared memory
	size_t declared;    // bytes of static shared memory that the kernel has on a GPU
	uint64_t seed;      // of the random order of threads and blocks; 0: in order
} emu_grid;

// emu_find finds a kernel by name, NULL if there is none; emu_threads is its launch bound, and
// emu_name the name of kernel i, NULL behind the last.
void* emu_find(const char* name);
int emu_threads(void* kernel);
const char* emu_name(int i);

// emu_launch runs a grid. It returns NULL, or what was wrong.
const char* emu_launch(void* kernel, const uint64_t* words, size_t n, emu_grid grid);

#ifdef __cplusplus
}
#endif
