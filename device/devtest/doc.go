// Package devtest is the conformance suite of package device: what a backend
// must do, written as cases against plain float64 Go.
//
// A backend's test is one call of [Run], and its benchmark one call of [Bench].
//
// The few types: a bed is a device with the tensors of one case and their first
// contents; a job is what a case runs and what must come out; an attention is
// one case of Attend or Append, with its own definition in oracle.go.
//
// Every job runs eagerly and then, from the same contents, captured and
// replayed; both must give the same bits. Error bounds are relative to the
// largest value of the result and stand beside the case.
//
// Start reading at devtest.go, then math.go, then oracle.go.
package devtest
