//go:build !race

package cpu

// race: tests run under the race detector.
const race = false
