//go:build unix && !linux

package weights

// adviseHuge does nothing: this system chooses its pages by itself.
func adviseHuge([]byte) {}
