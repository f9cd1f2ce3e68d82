//go:build race

package engine_test

// race: tests run under the race detector.
const race = true
