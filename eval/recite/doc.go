// Package recite makes a task of thousands of decode steps: a list of lines is to be written
// down again, in its order or sorted. Answers are scored line by line, so that what a sparse
// method loses on the way is a curve over the steps.
//
//   - [List]: what is asked; its cases are prompts with the lines that are right.
//   - [Answer]: the line that is written of an answer, and its score.
//   - [Curve]: the share of right lines against the decode step.
//
// Start reading at recite.go.
package recite
