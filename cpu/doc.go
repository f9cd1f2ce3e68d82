// Package cpu is the CPU backend.
package cpu
