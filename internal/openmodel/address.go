package openmodel

import (
	"fmt"

	"github.com/gollm/gollm/internal/console"
)

// heapRoom is the bytes of address space that are left for the Go runtime beside a model
// and its cache: its heap, and the stacks of its threads.
const heapRoom = 256 << 20

// checkAddresses refuses what takes more address space than a limit leaves (ulimit -v):
// the Go runtime, which then cannot grow, ends a program without a word of ours.
func checkAddresses(what string, need int64) error {
	left, limited := addressSpace()
	if !limited || uint64(need)+heapRoom <= left {
		return nil
	}
	return fmt.Errorf("%s needs %s of address space and %s beside it, but the limit on it (ulimit -v) leaves %s; raise the limit",
		what, console.SizeText(need), console.SizeText(heapRoom), console.SizeText(int64(left)))
}
