//go:build race

package sparse_test

// race: tests run under the race detector.
const race = true
