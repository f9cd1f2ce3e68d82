// Package sparse is the attention of the engine: which stored positions each
// query row reads, in prefill and in decode. Every method is written once, in
// terms of the calls of package device, and runs on every backend.
//
// The few types:
//
//   - [Method]: one algorithm; what it can do is which of [Prefiller],
//     [Decoder], [Observer], [Restarter], [Windower], [Freezer] and [Counter] it
//     satisfies.
//   - [Spec]: a composition of methods as the text of --attn; [Parse] reads it,
//     [Spec.Build] makes the policy.
//   - [Policy]: a spec bound to a runner: its methods in the order of stages.
//   - [Pass]: one forward pass, a prefill chunk or a decode step, as a method sees it.
//   - [Env]: the shapes a method is built for, and its only source of memory.
//
// The order of stages (each sees only what the one before left):
//
//  1. rows: which rows a layer updates (Freezer)
//  2. window: which part of the past a layer sees (Windower)
//  3. select: what to read of it
//  4. sample: an estimate of the residual, which was not selected
//  5. value: a random sample of the values
//
// State has three lifetimes. Per page: [Env.PageState], which is shared, forked
// and copied with the page. Per sequence and across decode steps: [Env.State].
// Across the layers of one pass: [Env.Scratch]. No method allocates after it is
// built.
//
// A new method is one file with its options, its table entry and its method,
// and one line in table.go; the laws in laws_test.go then run by themselves.
//
// Start reading at pass.go, then policy.go, then one method.
package sparse
