//go:build !linux

package cpu

// adviseHuge does nothing: only Linux takes advice on huge pages.
func adviseHuge(b []byte) {}

// availableMemory is unknown.
func availableMemory() uint64 { return 0 }
