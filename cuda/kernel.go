//go:build cuda || cudaemu

package cuda

import "fmt"

// defaultShared is the bytes of shared memory, static and dynamic, that a block may have
// without an attribute of its kernel that allows more.
const defaultShared = 48 << 10

// kernel is a kernel that is loaded.
type kernel struct {
	function
	static  int // bytes of shared memory that it declares
	dynamic int // bytes of shared memory that its launches may ask for besides
}

// kernel loads the kernel called name, once.
func (d *dev) kernel(name string) (*kernel, error) {
	if k, ok := d.kernels[name]; ok {
		return k, nil
	}
	f, err := d.drv.find(name)
	if err != nil {
		return nil, err
	}
	static, err := d.drv.staticShared(f)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	k := &kernel{f, static, defaultShared - static}
	d.kernels[name] = k
	return k, nil
}

// allow lets launches of k ask for dynamic bytes of shared memory.
func (d *dev) allow(k *kernel, dynamic int) error {
	if dynamic <= k.dynamic {
		return nil
	}
	if limit := d.drv.sharedMemory(); k.static+dynamic > limit {
		return fmt.Errorf("a block needs %d bytes of shared memory (%d static, %d dynamic), the GPU has %d", k.static+dynamic, k.static, dynamic, limit)
	}
	if err := d.drv.allowShared(k.function, dynamic); err != nil {
		return err
	}
	k.dynamic = dynamic
	return nil
}

// room is the bytes of dynamic shared memory that the GPU has for a block of the kernel
// called name, 0 where it does not load.
func (o *ops) room(name string) int {
	k, err := o.d.kernel(name)
	if err != nil {
		o.d.keep(err)
		return 0
	}
	return o.d.drv.sharedMemory() - k.static
}
