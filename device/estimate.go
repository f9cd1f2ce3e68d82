package device

// Estimator sizes and draws random samples of positions that were not selected.
type Estimator interface{}
