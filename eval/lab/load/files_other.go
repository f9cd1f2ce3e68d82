//go:build !unix

package main

// maxFiles is how many files this process may have open, where nobody says.
func maxFiles() int { return 256 }
