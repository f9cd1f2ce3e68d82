package device

// Reuser lets a later step use what an earlier one selected.
type Reuser interface{}
