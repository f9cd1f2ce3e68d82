// Package jsonl reads files of one JSON value to a line, of any length, with the
// numbers of their lines.
//
// The types: [Reader]. Start reading at jsonl.go.
package jsonl
