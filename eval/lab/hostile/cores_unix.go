//go:build unix

package main

import (
	"syscall"
	"time"
)

// coreTime is the time of processors that this process has used.
func coreTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
