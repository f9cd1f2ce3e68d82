// What lt_cuda.go calls of lt.c.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct gollm_lt gollm_lt;

// gollm_lt_product is dst = x·wᵀ: dst f32 [rows, n] in rows of ld, x and w half
// precision [rows, k] and [n, k]. Where brain is set, all three are bfloat16; where
// add is, dst += x·wᵀ.
typedef struct {
	void* dst;
	const void *x, *w;
	uint64_t rows, n, k, ld, brain, add;
	void* work;
	size_t size;  // bytes of work
} gollm_lt_product;

// gollm_lt_open finds the library where one is installed; NULL if there is none that
// starts. The context is the thread's.
gollm_lt* gollm_lt_open(void);

size_t gollm_lt_version(gollm_lt*);
void gollm_lt_close(gollm_lt*);

// gollm_lt_multiply queues a product and returns the library's code.
int gollm_lt_multiply(gollm_lt*, gollm_lt_product, void* stream);
