//go:build cudaemu

package kernels

/*
#cgo CXXFLAGS: -std=c++17 -O2 -DGOLLM_EMU -fno-strict-aliasing -fsanitize=alignment -Wall -Wno-unused-variable -Wno-unknown-pragmas -Wno-parentheses
#cgo LDFLAGS: -lm
#include <stdlib.h>
#include "emu/api.h"
*/
import "C"

import (
	"embed"
	"errors"
	"sync"
	"unsafe"
)

// The sources are embedded so that a change of one rebuilds the package: the go command does
// not follow #include.
//
//go:embed *.cu *.cuh emu/*.h
var _ embed.FS

// Kernel is a kernel that the emulator runs.
type Kernel struct {
	at   unsafe.Pointer
	name string
}

// Name is the kernel's name.
func (k Kernel) Name() string { return k.name }

// Threads is the kernel's launch bound.
func (k Kernel) Threads() int { return int(C.emu_threads(k.at)) }

// Names are all kernels.
func Names() (all []string) {
	for i := 0; ; i++ {
		name := C.emu_name(C.int(i))
		if name == nil {
			return all
		}
		all = append(all, C.GoString(name))
	}
}

// Find finds a kernel by name.
func Find(name string) (Kernel, bool) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	at := C.emu_find(text)
	return Kernel{at, name}, at != nil
}

// One launch runs at a time.
var running sync.Mutex

// Launch runs a grid and waits for it. words are the arguments; shared is the dynamic shared
// memory in bytes, declared the static one that the kernel has on a GPU; cluster is how many
// blocks in z form a cluster. With a seed the order of threads and blocks is random.
func (k Kernel) Launch(blocks [3]int, threads, shared, declared, cluster int, seed uint64, words []uint64) error {
	running.Lock()
	defer running.Unlock()
	g := C.emu_grid{
		x: C.uint(blocks[0]), y: C.uint(blocks[1]), z: C.uint(blocks[2]),
		threads: C.uint(threads), cluster: C.uint(cluster), shared: C.size_t(shared), declared: C.size_t(declared), seed: C.uint64_t(seed),
	}
	wrong := C.emu_launch(k.at, (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(words))), C.size_t(len(words)), g)
	if wrong != nil {
		return errors.New(C.GoString(wrong))
	}
	return nil
}

// Alloc allocates zeroed memory for kernels, 16-byte aligned; nil when there is none.
func Alloc(size int) unsafe.Pointer { return C.calloc(1, C.size_t(size)) }

// Free frees it.
func Free(at unsafe.Pointer) { C.free(at) }
