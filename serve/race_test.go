//go:build race

package serve

// race says that the race detector is on, under which the numbers of a model take ten times
// as long.
const race = true
