// cuBLASLt for lt_cuda.go.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct gollm_lt gollm_lt;

// gollm_lt_product is dst = x·wᵀ, or with add dst += x·wᵀ: dst f32 [rows, n] with a row stride
// of ld elements, x and w f16 [rows, k] and [n, k]. With bf16 all three are bfloat16.
typedef struct {
	void* dst;
	const void *x, *w;
	uint64_t rows, n, k, ld, bf16, add;
	void* work;
	size_t size;  // of work, in bytes
} gollm_lt_product;

// gollm_lt_open loads the library and makes a handle in the thread's context; NULL if that fails.
gollm_lt* gollm_lt_open(void);

size_t gollm_lt_version(gollm_lt*);
void gollm_lt_close(gollm_lt*);

// gollm_lt_multiply queues a product and returns the library's status.
int gollm_lt_multiply(gollm_lt*, gollm_lt_product, void* stream);
