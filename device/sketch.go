package device

// Sketcher compares blocks of positions by sketches of their means.
type Sketcher interface{}
