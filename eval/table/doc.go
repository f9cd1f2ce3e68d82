// Package table reads rows of published data sets: files of JSON lines and of Parquet,
// of which every row becomes a JSON object, so that a suite reads both alike.
//
// Start reading at rows.go.
package table
