//go:build !unix

package main

import "time"

// began is when the program did.
var began = time.Now()

// coreTime stands for the time of processors, which is not known here.
func coreTime() time.Duration { return time.Since(began) }
