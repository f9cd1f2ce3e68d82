// Package needle is the needle in a haystack: one sentence hidden at some depth of
// a long text, asked for at its end, over a grid of lengths and depths.
//
// The few types:
//
//   - [Grid]: the lengths, depths and rounds.
//   - [Case]: one prompt in tokens, with its answer.
//   - [Heat]: scores by depth and length, as CSV, SVG or for a terminal.
//
// The text is cut and the needle inserted in tokens, after a full stop, so that a
// prompt has the length that was asked for. The haystack, the needle and the
// question are those of MInference and AnchorAttention; the instruction around
// them is our own.
//
// Start reading at needle.go.
package needle
