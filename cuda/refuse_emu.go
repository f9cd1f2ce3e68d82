//go:build cudaemu

package cuda

import (
	"errors"
	"fmt"
)

// The driver's errors for launches that the emulator refuses.
var (
	errValue     = errors.New("CUDA_ERROR_INVALID_VALUE: invalid argument")
	errResources = errors.New("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch")
	errCluster   = errors.New("CUDA_ERROR_INVALID_CLUSTER_SIZE: cluster misconfiguration")
)

// Limits of a GPU of compute capability 8.0 or more.
const (
	gridX           = 1<<31 - 1
	gridYZ          = 1<<16 - 1
	blockThreads    = 1024
	blockRegisters  = 64 << 10
	warpRegisters   = 256 // the unit of allocation for a warp
	portableCluster = 8   // blocks per cluster without an attribute of the kernel
)

// refused is the driver's error for a launch, nil for a legal one.
func (d *driver) refused(f function, b blocks, threads, dynamic, cluster int) error {
	s := d.sizes[f.Name()]
	switch {
	case b.x < 1 || b.x > gridX || b.y < 1 || b.y > gridYZ || b.z < 1 || b.z > gridYZ:
		return fmt.Errorf("%w: %d x %d x %d blocks, at most %d x %d x %d", errValue, b.x, b.y, b.z, gridX, gridYZ, gridYZ)
	case threads < 1 || threads > min(f.Threads(), blockThreads):
		return fmt.Errorf("%w: blocks of %d threads, the kernel is compiled for %d", errValue, threads, f.Threads())
	case registers(threads, s.registers) > blockRegisters:
		return fmt.Errorf("%w: %d threads of %d registers, a block has %d", errResources, threads, s.registers, blockRegisters)
	case dynamic < 0 || dynamic > d.dynamicLimit(f):
		return fmt.Errorf("%w: %d bytes of dynamic shared memory with %d static, %d are allowed", errValue, dynamic, s.static, d.dynamicLimit(f))
	case cluster > d.maxCluster() && cluster > 1 || cluster < 0:
		return fmt.Errorf("%w: %d blocks, at most %d", errCluster, cluster, d.maxCluster())
	case cluster > 1 && b.z%cluster != 0:
		return fmt.Errorf("%w: %d blocks in z in clusters of %d", errCluster, b.z, cluster)
	}
	return nil
}

// registers is the registers of a block.
func registers(threads, each int) int {
	return ceil(threads, 32) * ceil(each*32, warpRegisters) * warpRegisters
}

// dynamicLimit is the limit of a kernel's dynamic shared memory, in bytes.
func (d *driver) dynamicLimit(f function) int {
	if allowed, ok := d.allowed[f]; ok {
		return allowed
	}
	return defaultShared - d.sizes[f.Name()].static
}

// allowShared raises the limit of a kernel's dynamic shared memory.
func (d *driver) allowShared(f function, bytes int) error {
	if static := d.sizes[f.Name()].static; bytes < 0 || static+bytes > d.shared {
		return fmt.Errorf("%w: %d bytes of dynamic shared memory with %d static, a block has %d", errValue, bytes, static, d.shared)
	}
	d.allowed[f] = bytes
	return nil
}
