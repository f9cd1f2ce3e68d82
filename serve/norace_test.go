//go:build !race

package serve

const race = false
