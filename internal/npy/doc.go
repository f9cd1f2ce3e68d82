// Package npy reads and writes the .npy files of NumPy: one array of float16 or
// float32 numbers in C order.
//
// The only type is [Array]. A file is checked against its size before anything
// is allocated for it.
//
// Start reading at npy.go.
package npy
