// Package trial answers the samples of an evaluation and keeps what was answered,
// so that a run that is killed goes on where it was.
//
// The few types:
//
//   - [Unit]: a file of samples and how they are asked and graded.
//   - [Folder]: the folder of a run: a manifest and a log for each unit under
//     each setting.
//   - [Log]: answers of one unit, appended line by line.
//   - [Answerer]: turns the tokens of a prompt into those of an answer.
//   - [Summary]: what the answers come to, per task and setting.
//   - [Grader]: scores the lines that a suite has written, whatever was stored of them.
//
// The rules:
//
//  1. The key of an answer is the number of its sample's line.
//  2. A line is written with one call and ends with a line end. A last line that
//     lacks it was cut off by a crash and is dropped; damage anywhere else is an
//     error.
//  3. What an answer depends on is in the manifest. A folder is never continued
//     under another manifest.
//  4. Answers are the same bytes whenever they are computed. Times are not, so
//     they are in a file of their own.
//  5. A folder may be somebody else's. No name in it and no link leads out of it, and a
//     score is what the answer is worth now.
//
// Start reading at folder.go, then log.go, then unit.go; grade.go is how they are read.
package trial
