//go:build !linux

package openmodel

// addressSpace is not known here.
func addressSpace() (left uint64, limited bool) { return 0, false }
