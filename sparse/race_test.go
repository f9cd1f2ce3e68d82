//go:build race

package sparse_test

// race: the race detector makes everything ten times slower, and long texts show
// it nothing that short ones do not.
const race = true
