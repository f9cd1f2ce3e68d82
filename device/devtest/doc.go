// Package devtest is the conformance suite of package device: cases with references in plain
// float64 Go, which every backend must pass. A backend's test is one call of [Run], and its
// benchmark one call of [Bench].
//
// A bed is a device with the tensors of one case and their initial contents; a job is the calls of
// a case and the expected results; an attention is a case of Attend, whose reference is in
// oracle.go. Every job runs eagerly and then, from the same contents, captured and replayed; both
// must give the same bits. Error bounds are relative to the largest value of the result, and are
// beside the case.
//
// A case is named for its call or rule, op=TopK/lens=.../..., and is in the file of its verb:
// math*.go, paged*.go, score*.go (with the Summarize rules whose index it scores), select*.go,
// sample*.go, walk*.go, reuse.go. Fused sequences are fuse.go and walk_fused.go; cases at every
// shape of heads heads.go; the checks that apply to all calls access.go (reads and writes what it
// says), alias.go (operands that share memory), late.go (programmatic dependent launch), until.go
// (cancellation) and complete.go (no rule without a case).
//
// Start reading at devtest.go, then math.go, then oracle.go.
package devtest
