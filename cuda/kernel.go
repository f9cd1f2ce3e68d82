//go:build cuda || cudaemu

package cuda

import "fmt"

// defaultShared is the limit of a block's shared memory in bytes, static and dynamic, without
// the kernel attribute that allows more.
const defaultShared = 48 << 10

// kernel is a loaded kernel.
type kernel struct {
	function
	static  int // bytes of static shared memory
	dynamic int // limit of the dynamic shared memory of its launches, in bytes
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

// allow raises the limit of k's dynamic shared memory.
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

// room is the limit of the dynamic shared memory of a block of the kernel called name on this
// GPU, in bytes; 0 if the kernel does not load.
func (o *ops) room(name string) int {
	k, err := o.d.kernel(name)
	if err != nil {
		o.d.keep(err)
		return 0
	}
	return o.d.drv.sharedMemory() - k.static
}
