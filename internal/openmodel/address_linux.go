package openmodel

import (
	"fmt"
	"os"
	"syscall"
)

// addressSpace is the bytes of address space that this process may still take, where
// they are limited.
func addressSpace() (left uint64, limited bool) {
	const unlimited = 1<<64 - 1
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_AS, &l) != nil || l.Cur == unlimited {
		return 0, false
	}
	b, err := os.ReadFile("/proc/self/statm")
	var pages uint64
	if err == nil {
		_, err = fmt.Sscan(string(b), &pages)
	}
	if err != nil {
		return 0, false
	}
	return l.Cur - min(l.Cur, pages*uint64(os.Getpagesize())), true
}
