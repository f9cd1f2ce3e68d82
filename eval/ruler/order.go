package ruler

import "slices"

// ascending sorts places in place.
func ascending(places []int) []int {
	slices.Sort(places)
	return places
}

// descending sorts places in place, the last first.
func descending(places []int) []int {
	slices.Sort(places)
	slices.Reverse(places)
	return places
}

// insert puts a line before line number at, or at the end.
func insert(lines []string, at int, line string) []string {
	return slices.Insert(lines, min(at, len(lines)), line)
}
