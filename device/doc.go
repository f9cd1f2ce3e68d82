// Package device is the contract between the engine and a backend: what a tensor is, which
// operations there are, and how attention over a paged KV cache is described as data. It
// computes nothing.
//
//   - [Tensor]: a typed row-major view of device memory.
//   - [Device]: owns memory and the order of work; opened by name with [Open].
//   - [Call], [Queue], [Do]: an operation as a value, and what executes it.
//   - [KV], [Span], [List], [Plan]: the paged cache, and which positions each row attends to.
//   - [Summarize], [Score], [Select], [Sample], [Attend]: the steps of sparse attention. What
//     differs between algorithms is a rule, a field of the call.
//
// # Steps can be replayed
//
// A step is captured once and launched many times, as a CUDA graph is ([Device.Capture]):
//
//  1. No Go value that changes between steps reaches a call. Positions, lengths, page
//     numbers and counts are tensors.
//  2. No call allocates, waits or returns an error. The first failure sticks, and
//     [Device.Sync] reports it. Misuse, such as a wrong shape, panics in Check with the
//     same message on every backend.
//
// # Rows and slots
//
// A [KV] has S slots (sequences). Either S is 1 and the rows of a call are consecutive
// positions of that slot, the last one at Len-1 (a prefill chunk); or S is the number of rows
// and row i is the newest position of slot i (a batched decode step). Len 0 marks an idle
// slot, whose row is skipped. A head group is what shares one list: a query head, or the query
// heads of one kv head (a GQA group).
//
// # What a backend does with a call
//
// Every call says three things, and everything else follows from them. Check panics unless
// the operands fit together; it runs once, before the backend sees the call. Access names the
// tensors that are read and written. Cost is the minimum traffic and arithmetic: the roofline
// of gollm bench --trace.
//
//   - Fusion. A queue is a [github.com/gollm/gollm/device/fusion.Window]: it holds calls back
//     while they may be the start of a pattern that one kernel computes. Callers write plain
//     sequences and end the life of temporaries with [Discard], so that a fused kernel need not
//     store them. The patterns of CUDA are cuda/fuse.go.
//   - Hazards. A kernel that is launched before the previous one has finished (programmatic
//     dependent launch) must not read what that one writes. cuda/hazard.go decides it from
//     Access alone.
//   - Access checks. The conformance suite overwrites every tensor that a call does not name
//     before it runs, and demands that they stay as they are: a missing Read or Write fails
//     there.
//
// # Adding a rule
//
// A rule of a call, say of [Select], is
//
//  1. device/select.go: its constant with a comment (formula, shapes, ties, NaN), its name in
//     selectOps, and its case in Check; in Access and Cost where it reads more than the scores and
//     writes more than the list. New operands are fields of the call.
//  2. cpu/select.go: its case in selectKeys. The definition is a method of ops in a file
//     select_*.go; eachBlock and newOutList do what most rules share.
//  3. cuda/select.go: its case in selectList, and the launch.
//  4. cuda/kernels: the kernel, in a .cu file, and its line in sizes.txt: shared memory and
//     registers for three architectures. make test-driver compiles the kernels, needs no GPU, and
//     says where the right line is; until then the emulator takes any six numbers.
//  5. device/devtest: cases with a reference in plain float64 Go, in a file select_*.go (blocks of
//     PageLen positions: walk.go). The last subtest of the suite, "complete", fails until there is
//     one. A rule whose tensors have the head dimension needs a case in heads.go too, another is
//     named in the headless list of its file.
//  6. engine/trace_test.go: a spec in costSpecs that uses it, unless a method with its defaults
//     does: TestCosts fails for a rule that no spec uses.
//
// Rules of Summarize, Score and Sample have the same places under their own names.
//
// # Adding an operation
//
// The same, except that the struct is new: in device/math.go or a file of its own, with Check,
// Access, Cost and kind, and its register line. Its cases in cpu and cuda are in run of do.go.
// Recording, fusion, hazards and tracing need nothing: they know calls by the interface.
//
// # Trying it
//
// The first line is the CPU; the second compiles the kernels for the emulator (a minute after a
// change of a .cu file, CGO_ENABLED=1); the third runs every group, so that "complete" runs too,
// and what holds of every rule.
//
//	go test ./cpu -run 'TestConformance/.*/(math|walk|access)'
//	go test -tags cudaemu ./cuda -run 'TestConformance/(math|walk|access)|TestSizes'
//	go test ./device ./cpu ./engine -run 'TestRules|TestFewMethods|TestConformance|TestCosts'
//
// Start reading at tensor.go, then device.go, call.go and paged.go.
package device
