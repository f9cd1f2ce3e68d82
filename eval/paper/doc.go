// Package paper has the tables of the publications that the attention methods come from:
// what each row and column is, how it is run here, and what was published.
//
// The few types:
//
//   - [Paper]: a publication, one of the JSON files of this folder.
//   - [Table]: a table or figure of it that is about quality, with its rows, columns and
//     published figures. It is run by a command of gollm eval ([Suite]), or by
//     lm-evaluation-harness through gollm serve ([Harness]).
//   - [Report]: the table with our figures beside the published ones. What was not run,
//     or not published, is a hole that says why.
//
// A figure that could not be read in the paper is left out; nothing is estimated.
//
// Start reading at sketchwalk.json, then paper.go, then report.go.
package paper
