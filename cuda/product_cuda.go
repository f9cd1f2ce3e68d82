//go:build cuda && !cudaemu

package cuda

/*
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The part of cuBLASLt that a product needs. Its headers are not needed to build:
// the handles are pointers, and the numbers are those of cublasLt.h.
typedef struct {
	uint64_t algo[8];
	size_t space;
	int status;
	float waves;
	int reserved[4];
} heuristic;

typedef struct {
	void* lib;
	void *handle, *desc, *layout, *preference;
	int (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*, const uint64_t*, void*, size_t, CUstream);
	int (*destroy)(void*);
	size_t version;
	heuristic chosen;
} product;

enum { COMPUTE_32F = 68, REAL_32F = 0, REAL_16BF = 14, TRANSPOSE_A = 3, OPERATION_T = 1, MOST_SPACE = 1 };

static void close_product(product* p) {
	if (p->handle) p->destroy(p->handle);
	if (p->lib) dlclose(p->lib);
	free(p);
}

// open_product finds the library and prepares products of n x n matrices of bfloat16
// with sums in f32; NULL where it is not found or refuses.
static product* open_product(CUcontext context, uint64_t n, uint64_t space) {
	static const char* names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"};
	if (cuCtxSetCurrent(context)) return 0;
	product* p = calloc(1, sizeof *p);
	for (size_t i = 0; !p->lib && i < sizeof names / sizeof *names; i++) p->lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!p->lib) {
		free(p);
		return 0;
	}
	int (*create)(void**) = (int (*)(void**))dlsym(p->lib, "cublasLtCreate");
	int (*describe)(void**, int, int) = (int (*)(void**, int, int))dlsym(p->lib, "cublasLtMatmulDescCreate");
	int (*set)(void*, int, const void*, size_t) = (int (*)(void*, int, const void*, size_t))dlsym(p->lib, "cublasLtMatmulDescSetAttribute");
	int (*shape)(void**, int, uint64_t, uint64_t, int64_t) = (int (*)(void**, int, uint64_t, uint64_t, int64_t))dlsym(p->lib, "cublasLtMatrixLayoutCreate");
	int (*prefer)(void**) = (int (*)(void**))dlsym(p->lib, "cublasLtMatmulPreferenceCreate");
	int (*want)(void*, int, const void*, size_t) = (int (*)(void*, int, const void*, size_t))dlsym(p->lib, "cublasLtMatmulPreferenceSetAttribute");
	int (*choose)(void*, void*, void*, void*, void*, void*, void*, int, heuristic*, int*) =
		(int (*)(void*, void*, void*, void*, void*, void*, void*, int, heuristic*, int*))dlsym(p->lib, "cublasLtMatmulAlgoGetHeuristic");
	size_t (*version)(void) = (size_t (*)(void))dlsym(p->lib, "cublasLtGetVersion");
	*(void**)&p->matmul = dlsym(p->lib, "cublasLtMatmul");
	*(void**)&p->destroy = dlsym(p->lib, "cublasLtDestroy");
	int transpose = OPERATION_T, found = 0;
	if (!create || !describe || !set || !shape || !prefer || !want || !choose || !version || !p->matmul || !p->destroy || create(&p->handle) ||
		describe(&p->desc, COMPUTE_32F, REAL_32F) || set(p->desc, TRANSPOSE_A, &transpose, sizeof transpose) ||
		shape(&p->layout, REAL_16BF, n, n, (int64_t)n) || prefer(&p->preference) || want(p->preference, MOST_SPACE, &space, sizeof space) ||
		choose(p->handle, p->desc, p->layout, p->layout, p->layout, p->layout, p->preference, 1, &p->chosen, &found) || !found) {
		close_product(p);
		return 0;
	}
	p->version = version();
	return p;
}

static int run_product(CUcontext context, product* p, uint64_t dst, uint64_t a, uint64_t b, uint64_t work, size_t space, CUstream stream) {
	float one = 1, zero = 0;
	CUresult r = cuCtxSetCurrent(context);
	return r ? (int)r : p->matmul(p->handle, p->desc, &one, (void*)a, p->layout, (void*)b, p->layout, &zero, (void*)dst, p->layout, (void*)dst, p->layout, p->chosen.algo, (void*)work, space, stream);
}
*/
import "C"

import (
	"errors"
	"fmt"
)

// What Peaks measures with: bytes of a copy, and rows of a product.
const (
	peakCopy     = 1 << 30
	peakProduct  = 8192
	librarySpace = 64 << 20 // bytes that the library may work in
)

// libraryProduct is a product by cuBLASLt.
type libraryProduct struct {
	d *driver
	p *C.product
}

// openProduct prepares products of n x n matrices of bfloat16.
func (d *driver) openProduct(n int) (*libraryProduct, error) {
	p := C.open_product(d.c(), C.uint64_t(n), librarySpace)
	if p == nil {
		return nil, errors.New("no libcublasLt.so is found")
	}
	return &libraryProduct{d, p}, nil
}

// name is for example "cuBLASLt 13.0.0".
func (p *libraryProduct) name() string {
	v := int(p.p.version)
	if v >= 100000 { // since 11.0: major, minor and patch
		return fmt.Sprintf("cuBLASLt %d.%d.%d", v/10000, v/100%100, v%100)
	}
	return fmt.Sprintf("cuBLASLt %d", v)
}

// run queues dst = a·bᵀ.
func (p *libraryProduct) run(dst, a, b, work uintptr) error {
	code := C.run_product(p.d.c(), p.p, C.uint64_t(dst), C.uint64_t(a), C.uint64_t(b), C.uint64_t(work), librarySpace, p.d.cStream())
	if code != 0 {
		return fmt.Errorf("cublasLtMatmul: status %d", int(code))
	}
	return nil
}

// close gives the library back.
func (p *libraryProduct) close() { C.close_product(p.p) }
