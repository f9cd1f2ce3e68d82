// Package metric scores answers as the official code of RULER and LongBench
// does, to the last digit, and says how sure a score is.
//
// The few types:
//
//   - [CodeBackend]: which of two ratios compares code.
//   - [Interval]: a mean and its confidence interval.
//   - [Paired]: two runs over the same samples.
//
// The functions that score take an answer and a reference and return a number
// from 0 to 1. The oddities of the official code are part of the metric: a list
// that changes while it is walked, an empty word in a sentence, a comparison that
// is not symmetric. Each is named where it is.
//
// Start reading at qa.go, then rouge.go, then interval.go.
package metric
