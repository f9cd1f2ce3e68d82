//go:build !race

package sparse_test

const race = false
