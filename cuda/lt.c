//go:build cuda && !cudaemu

// Loads cuBLASLt at run time, as shim.c does the driver, with the first large GEMM. The types
// declared here follow the library's documentation; programs see only pointers to limit.

#include "lt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle, *description, *layout, *preference;

// found is one result of the heuristic.
typedef struct {
	uint64_t algorithm[8];
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
} found;

enum { ANSWERS = 8, TILE = 1, SPLIT_K = 2 };  // results of the heuristic; attributes of an algorithm
enum { R_32F = 0, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, TRANSPOSE_A = 3, WORKSPACE = 1 };

// plan is a shape of product and its algorithm.
typedef struct {
	uint64_t rows, n, k, ld, bf16;
	description product;
	layout x, w, dst;
	uint64_t algorithm[8];
	int used;
} plan;

enum { PLANS = 64 };

struct gollm_lt {
	void* library;
	handle handle;
	plan plans[PLANS];
	int next;

	int (*create)(handle*);
	int (*destroy)(handle);
	size_t (*version)(void);
	int (*describe)(description*, int compute, int scale);
	int (*set)(description, int attribute, const void*, size_t);
	int (*forget)(description);
	int (*lay_out)(layout*, int type, uint64_t rows, uint64_t columns, int64_t ld);
	int (*unlay)(layout);
	int (*prefer)(preference*);
	int (*prefer_set)(preference, int attribute, const void*, size_t);
	int (*unprefer)(preference);
	int (*choose)(handle, description, layout, layout, layout, layout, preference, int limit, found*, int* n);
	int (*ask)(const uint64_t* algorithm, int attribute, void*, size_t, size_t* written);
	int (*multiply)(handle, description, const void* alpha, const void* a, layout, const void* b, layout, const void* beta,
		const void* c, layout, void* d, layout, const uint64_t* algorithm, void* work, size_t size, void* stream);
};

// open_library loads the library.
static void* open_library(void) {
	static const char* names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.12"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		void* library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (library) return library;
	}
	return NULL;
}

gollm_lt* gollm_lt_open(void) {
	void* library = open_library();
	if (!library) return NULL;
	gollm_lt* lt = calloc(1, sizeof *lt);
	if (!lt) return NULL;
	lt->library = library;
	struct {
		void** to;
		const char* name;
	} all[] = {
		{(void**)&lt->create, "cublasLtCreate"},
		{(void**)&lt->destroy, "cublasLtDestroy"},
		{(void**)&lt->version, "cublasLtGetVersion"},
		{(void**)&lt->describe, "cublasLtMatmulDescCreate"},
		{(void**)&lt->set, "cublasLtMatmulDescSetAttribute"},
		{(void**)&lt->forget, "cublasLtMatmulDescDestroy"},
		{(void**)&lt->lay_out, "cublasLtMatrixLayoutCreate"},
		{(void**)&lt->unlay, "cublasLtMatrixLayoutDestroy"},
		{(void**)&lt->prefer, "cublasLtMatmulPreferenceCreate"},
		{(void**)&lt->prefer_set, "cublasLtMatmulPreferenceSetAttribute"},
		{(void**)&lt->unprefer, "cublasLtMatmulPreferenceDestroy"},
		{(void**)&lt->choose, "cublasLtMatmulAlgoGetHeuristic"},
		{(void**)&lt->ask, "cublasLtMatmulAlgoConfigGetAttribute"},
		{(void**)&lt->multiply, "cublasLtMatmul"},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (!(*all[i].to = dlsym(library, all[i].name))) {
			free(lt);
			return NULL;
		}
	}
	if (lt->create(&lt->handle)) {
		free(lt);
		return NULL;
	}
	return lt;
}

size_t gollm_lt_version(gollm_lt* lt) { return lt->version(); }

static void clear(gollm_lt* lt, plan* p) {
	if (p->product) lt->forget(p->product);
	if (p->x) lt->unlay(p->x);
	if (p->w) lt->unlay(p->w);
	if (p->dst) lt->unlay(p->dst);
	memset(p, 0, sizeof *p);
}

void gollm_lt_close(gollm_lt* lt) {
	for (int i = 0; i < PLANS; i++) clear(lt, &lt->plans[i]);
	lt->destroy(lt->handle);
	free(lt);
}

// best_of selects a result of the heuristic: the first one, or for some shapes the first one with
// a tile that was measured to be faster. An H200 that multiplies for long runs at its power limit,
// which the heuristic does not model. A shape always gets the same algorithm, and without split-K
// all of them were measured to give the same bits.
static int best_of(gollm_lt* lt, const plan* p, const found* answers, int count) {
	const int32_t faster_tile = p->bf16 || p->rows < 1024 ? 0 : p->n >= 3 * p->k ? 201 : p->k >= 3 * p->n ? 23 : 0;
	for (int i = 0; i < count && faster_tile; i++) {
		int32_t tile = 0, split = 0;
		size_t n;
		if (answers[i].state || lt->ask(answers[i].algorithm, TILE, &tile, sizeof tile, &n) || lt->ask(answers[i].algorithm, SPLIT_K, &split, sizeof split, &n)) continue;
		if (tile == faster_tile && split <= 1) return i;
	}
	return 0;
}

// make fills in a plan. The library's matrices are column-major: to it dst is [n, rows], x is
// [k, rows], and w is [k, n], transposed.
static int make(gollm_lt* lt, plan* p, size_t work) {
	const int32_t transpose = 1;
	const int operands = p->bf16 ? R_16BF : R_16F, result = p->bf16 ? R_16BF : R_32F;
	preference preferred = NULL;
	found answers[ANSWERS];
	int count = 0;
	memset(answers, 0, sizeof answers);
	int r = lt->describe(&p->product, COMPUTE_32F, R_32F);
	if (!r) r = lt->set(p->product, TRANSPOSE_A, &transpose, sizeof transpose);
	if (!r) r = lt->lay_out(&p->w, operands, p->k, p->n, p->k);
	if (!r) r = lt->lay_out(&p->x, operands, p->k, p->rows, p->k);
	if (!r) r = lt->lay_out(&p->dst, result, p->n, p->rows, p->ld);
	if (!r) r = lt->prefer(&preferred);
	if (!r) r = lt->prefer_set(preferred, WORKSPACE, &work, sizeof work);
	if (!r) r = lt->choose(lt->handle, p->product, p->w, p->x, p->dst, p->dst, preferred, ANSWERS, answers, &count);
	if (preferred) lt->unprefer(preferred);
	if (!r && (count < 1 || answers[0].state)) r = 15;  // CUBLAS_STATUS_NOT_SUPPORTED
	if (!r) memcpy(p->algorithm, answers[best_of(lt, p, answers, count)].algorithm, sizeof p->algorithm);
	p->used = 1;
	return r;
}

int gollm_lt_multiply(gollm_lt* lt, gollm_lt_product a, void* stream) {
	const float one = 1, keep = a.add ? 1 : 0;
	plan* p = NULL;
	for (int i = 0; i < PLANS && !p; i++) {
		plan* q = &lt->plans[i];
		if (q->used && q->rows == a.rows && q->n == a.n && q->k == a.k && q->ld == a.ld && q->bf16 == a.bf16) p = q;
	}
	if (!p) {
		p = &lt->plans[lt->next];
		lt->next = (lt->next + 1) % PLANS;
		clear(lt, p);
		p->rows = a.rows;
		p->n = a.n;
		p->k = a.k;
		p->ld = a.ld;
		p->bf16 = a.bf16;
		int r = make(lt, p, a.size);
		if (r) {
			clear(lt, p);
			return r;
		}
	}
	return lt->multiply(lt->handle, p->product, &one, a.w, p->w, a.x, p->x, &keep, a.dst, p->dst, a.dst, p->dst, p->algorithm, a.work, a.size, stream);
}
