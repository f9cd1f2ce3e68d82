//go:build !unix

package cpu

// mapMemory is not available here: newMemory allocates from the Go heap.
func mapMemory(size int) (*memory, error) { return nil, nil }
