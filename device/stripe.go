package device

// Striper finds single positions that a group of rows shares.
type Striper interface{}
