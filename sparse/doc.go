// Package sparse is the attention of the engine: which stored positions each
// query row reads, in prefill and in decode. Every system is written once, in
// terms of the operations of package device, and runs on every backend.
//
// The few types:
//
//   - [Spec]: what the text of --attn asks for; [Parse] reads it, [Spec.Build]
//     makes the policy.
//   - [Policy]: the attention of one runner: stages in a fixed order.
//   - [Method]: one attention system; what it can do is which of [Prefiller],
//     [Decoder], [Observer], [Restarter], [Windower], [Freezer] and [Counter] it
//     satisfies.
//   - [Pass]: one trip through the layers, as a method sees it.
//   - [Env]: the sizes a method is built for, and the only source of memory.
//
// The order of stages (each sees only what the one before left):
//
//  1. rows: which rows a layer updates (Freezer)
//  2. window: which part of the past a layer sees (Windower)
//  3. select: what to read of it
//  4. sample: an estimate of what was not selected
//  5. value: which values to read, at random
//
// State has four lifetimes. Per page: [Env.PageState], which is shared, forked
// and copied with the page. Per sequence and across decode steps: [Env.State].
// Across the layers of one pass: [Env.Scratch]. No method allocates after it is
// built.
//
// A new system is one file with its options, its table entry and its method,
// and one line in table.go; the laws in laws_test.go then run by themselves.
//
// Start reading at pass.go, then policy.go, then one method.
package sparse
