//go:build !linux

package cpu

// adviseHuge does nothing: huge pages are the system's choice here.
func adviseHuge(b []byte) {}

// availableMemory is unknown.
func availableMemory() uint64 { return 0 }
