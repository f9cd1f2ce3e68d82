package device

// ValueSampler draws the values that are read, in proportion to their weights.
type ValueSampler interface{}
