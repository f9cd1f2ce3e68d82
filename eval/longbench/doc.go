// Package longbench reads the data of LongBench, makes its prompts and scores
// answers to the digit of the official code: version 1 with its 21 data sets and
// the buckets of LongBench-E, and version 2 with its choices of four.
//
// The few types:
//
//   - [Dataset]: one of the 21: its metric, its budget, its rules.
//   - [Suite]: prompts and budgets, read from a checkout of THUDM/LongBench.
//   - [Row] and [Item]: a sample of version 1, and one of version 2.
//   - [Scored] and [Judged]: a file of answers of version 1, and of version 2.
//
// The texts of the prompts are not part of this program: they come from the
// user's checkout. Three of the five Chinese data sets are scored over the words of
// the Python package jieba, whose tables a [Splitter] reads from the user's folder of
// it; without one their answers are written and not scored.
//
// Start reading at dataset.go, then score.go, split.go and two.go.
package longbench
