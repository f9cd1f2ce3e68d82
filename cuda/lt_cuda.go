//go:build cuda && !cudaemu

package cuda

/*
#include <cuda.h>
#include "lt.h"

static gollm_lt* lt_open(CUcontext context) { return cuCtxSetCurrent(context) ? 0 : gollm_lt_open(); }

static int lt_multiply(CUcontext context, gollm_lt* lt, CUstream stream, uint64_t dst, uint64_t x, uint64_t w,
	uint64_t rows, uint64_t n, uint64_t k, uint64_t ld, uint64_t bf16, uint64_t add, uint64_t work, size_t size) {
	gollm_lt_product a = {(void*)dst, (const void*)x, (const void*)w, rows, n, k, ld, bf16, add, (void*)work, size};
	if (cuCtxSetCurrent(context)) return -1;
	return gollm_lt_multiply(lt, a, stream);
}

#cgo noescape lt_multiply
#cgo nocallback lt_multiply
*/
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"
)

// library is cuBLASLt, if this machine has it: lt is nil where it has not.
type library struct {
	open   sync.Once
	opened atomic.Bool
	off    bool // not to be used, for benchmarks
	lt     *C.gollm_lt
}

// openLibrary loads cuBLASLt.
func (d *driver) openLibrary() {
	defer d.library.opened.Store(true)
	d.library.lt = C.lt_open(d.c())
	if d.library.lt != nil {
		// The library keeps its kernels in the context when its handle is destroyed, so the
		// context must outlive this device.
		_, _ = d.device.RetainPrimaryCtx()
	}
}

// libraryLoaded reports whether loading cuBLASLt was tried.
func (d *driver) libraryLoaded() bool { return d.library.opened.Load() }

// hasLibrary reports whether there is a cuBLASLt; it loads it once.
func (d *driver) hasLibrary() bool {
	d.library.open.Do(d.openLibrary)
	return d.library.lt != nil && !d.library.off
}

// prepare loads cuBLASLt and computes a first product, which together take a tenth of a second.
func (d *driver) prepare() {
	d.library.open.Do(func() {
		d.openLibrary()
		if d.library.lt != nil {
			_ = d.do(d.firstProduct) // its error would come back with the next product
		}
	})
}

// firstProduct makes the library load its kernels, by a product on a stream of its own.
func (d *driver) firstProduct() error {
	const n = 1024
	p, err := cu.MemAlloc(n*n*(4+2+2) + librarySize)
	if err != nil {
		return err
	}
	defer func() { _ = cu.MemFree(p) }()
	stream, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Destroy() }()
	at := C.uint64_t(p)
	C.lt_multiply(d.c(), d.library.lt, C.CUstream(unsafe.Pointer(stream.C())), at, at+4*n*n, at+6*n*n, n, n, n, n, 0, 0, at+8*n*n, librarySize)
	return stream.Synchronize()
}

// libraryVersion is for example "13.0.2", and "" without a library.
func (d *driver) libraryVersion() string {
	if !d.hasLibrary() {
		return ""
	}
	v := int(C.gollm_lt_version(d.library.lt))
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// multiply queues dst = x·wᵀ, or dst += x·wᵀ, by cuBLASLt: dst f32 [rows, n] with a row stride of
// ld floats, x and w f16, all aligned to 256 bytes, which the library assumes. It may use
// librarySize bytes at work.
func (d *driver) multiply(dst, x, w uintptr, rows, n, k, ld int, add bool, work uintptr) error {
	return d.libraryProduct(dst, x, w, rows, n, k, ld, false, add, work)
}

// multiplyBF16 is multiply of n x n matrices of bfloat16, dst included.
func (d *driver) multiplyBF16(dst, x, w uintptr, n int, work uintptr) error {
	return d.libraryProduct(dst, x, w, n, n, n, n, true, false, work)
}

// libraryProduct is multiply, or multiplyBF16 if bf16 is set.
func (d *driver) libraryProduct(dst, x, w uintptr, rows, n, k, ld int, bf16, add bool, work uintptr) error {
	word := func(v bool) C.uint64_t {
		if v {
			return 1
		}
		return 0
	}
	r := C.lt_multiply(d.c(), d.library.lt, d.cStream(), C.uint64_t(dst), C.uint64_t(x), C.uint64_t(w),
		C.uint64_t(rows), C.uint64_t(n), C.uint64_t(k), C.uint64_t(ld), word(bf16), word(add), C.uint64_t(work), librarySize)
	if r != 0 {
		return fmt.Errorf("cuBLASLt %s: status %d for a product of %d x %d x %d", d.libraryVersion(), int(r), rows, n, k)
	}
	return nil
}

// closeLibrary destroys the handle.
func (d *driver) closeLibrary() {
	if d.library.lt != nil {
		C.gollm_lt_close(d.library.lt)
		d.library.lt = nil
	}
}

// hasWGMMA reports whether the GPU has wgmma and the fat binary has code for sm_90a; code for
// sm_90 runs there too, but has none.
func (d *driver) hasWGMMA() bool { return d.wgmma }
