//go:build unix

package cpu

import "syscall"

// mapMemory maps size anonymous bytes: they are zero, take no room until they are touched, and
// go back to the system when they are freed.
func mapMemory(size int) (*memory, error) {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	adviseHuge(b)
	return &memory{data: b, whole: b, unmap: syscall.Munmap}, nil
}
