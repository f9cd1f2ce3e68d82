// Package published reads the suites that others publish as files of JSON lines or of Parquet,
// makes their questions, and scores answers to the digit of the official code: MRCR, SCBench,
// InfiniteBench and the RULER files of KVPress.
//
// The few types:
//
//   - [Suite]: its data sets, what their answers are also averaged in, and where it comes from.
//   - [Set]: a data set: how a row becomes questions, and the score of an answer.
//   - [Question]: a prompt, where the question begins in it, and its right answer.
//   - [Answer]: the line that is written of an answer, in the official form where there is one.
//
// The texts around the data of SCBench and InfiniteBench are not part of this program: they
// come from the user's checkout, or are our own, and a report says which.
//
// Start reading at suite.go, then scbench.go; score.go has the scores.
package published
