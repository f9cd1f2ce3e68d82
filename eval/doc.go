// Package eval measures an engine: how well it predicts a text, and how fast it
// is beside what the machine allows.
//
// The few types:
//
//   - [Perplexity]: how well a model predicts a text, with its standard error.
//   - [Work]: what a prefill or a decode step must read and compute.
//   - [Machine]: what this machine can read and compute, measured.
//   - [Speed]: runs of a benchmark, with the roofline limit beside them.
//   - [Audit]: sparse attention beside dense, as JSON or a page of heat maps.
//
// Suites of questions about long texts are packages of their own below this one:
// ruler, longbench, published, needle and recite have the data, metric the scores, trial the
// runs.
//
// Start reading at perplexity.go, then work.go, then speed.go.
package eval
