// Package ruler makes, reads and scores the tasks of RULER, a test of long
// contexts: thirteen synthetic tasks at any length, for any tokenizer.
//
// The few types:
//
//   - [Task]: what is asked, with which parameters, and how answers are scored.
//   - [Wording]: the sentences around a task: our own, or those of an official
//     checkout.
//   - [Generator]: makes [Row] after Row of one task at one length.
//   - [Reader]: reads rows that were made elsewhere, of all three eras of the
//     official generator.
//   - [Prediction]: an answer, in the form that the official scorer reads.
//
// The rules:
//
//  1. With the same tokenizer, seed, wording and texts a generator makes the file
//     that the official one (commit c3f5e3b) makes with [WordsVersion] and the same
//     rules of NLTK, byte for byte. Random numbers are those of CPython and NumPy
//     (mersenne.go), and they are drawn in the same order; sentences are those of
//     eval/punkt.
//  2. A row is known by its line number. Its field index is no key: in needle
//     tasks it is the offset of the answer.
//  3. The prompt is Input and AnswerPrefix together, tokenized in one go.
//  4. What does not fit, or lacks a file, is an error or a named deviation, never
//     something else instead.
//
// Start reading at task.go, then generate.go, then score.go.
package ruler
