// Package device is the contract between the engine and the hardware: what a
// tensor is, what a backend can do, and how attention over a paged cache is
// described. It computes nothing.
//
// The few types:
//
//   - [Tensor]: a typed row-major view of device memory.
//   - [Device]: owns memory and order; opened by name with [Open].
//   - [Call], [Queue], [Do]: an operation as a value, and what takes it.
//   - [Summarize], [Score], [Select], [Sample], [Attend]: the verbs of attention; a rule is a field.
//   - [KV], [Span], [List], [Plan]: attention as data.
//   - [Draw]: randomness by address, never a running stream.
//
// The rules of a step, which make it replayable (see [Device.Capture]):
//
//  1. No Go value that changes between steps reaches an op. Positions, lengths,
//     page numbers and counts are tensors.
//  2. No op allocates, waits or returns an error. The first failure sticks and
//     [Device.Sync] reports it. Misuse, such as a wrong shape, panics with the
//     words of check.go on every backend.
//  3. Branches are gates: an op whose gate is closed leaves its destination alone.
//
// Two rules tie rows to sequences. A [KV] has S slots. Either S is 1 and all
// rows of the call are consecutive positions of that slot, the last of them at
// Len-1; or S equals the number of rows and row i is the newest position of
// slot i, with Len 0 marking an idle slot, whose row is skipped.
//
// Start reading at tensor.go, then device.go, then kv.go.
package device
