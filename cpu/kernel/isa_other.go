//go:build !amd64

package kernel

// nativeLoops is the loops beyond portable Go; none.
func nativeLoops() []loops { return nil }
