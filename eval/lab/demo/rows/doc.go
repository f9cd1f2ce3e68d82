// Rows makes what the demo model is trained on: tasks of RULER as package
// eval/ruler makes them, tokenized, with answers and with the loss of each token.
//
// The few types:
//
//   - recipe: what a row asks, and how often.
//   - document: the tokens of one row while it is written.
//   - batch: rows of one length, as they go to standard output.
//
// The rules:
//
//  1. The wording is that of eval/ruler and eval/recite, nothing is worded here but the form of an
//     answer, which RULER leaves open: it scores what an answer contains.
//  2. Batch number i of a seed is the same whatever the number of workers.
//  3. The seed of the test data, 42, makes no row.
//
// Start reading at main.go, then recipe.go, then answer.go.
package main
