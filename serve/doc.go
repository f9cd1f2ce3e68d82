// Package serve runs many requests over one model: continuous batching with chunked
// prefill, admission and preemption by the pages of the cache, and a prefix cache.
//
// The few types:
//
//   - [Request]: a prompt and how it is continued; plain data.
//   - [Scheduler]: owns the runners and the one goroutine that runs passes.
//   - [Answer]: what comes back: pieces while they are written, a [Result] at the end.
//   - [Constraint]: what a request lets the model write, a mask over each step's logits.
//
// The rules:
//
//  1. An answer does not depend on what else is running. On the CPU its bits are those of
//     the request alone; on a GPU they are within the bounds of package device/devtest.
//  2. A turn of the loop takes at most one prefill chunk and one decode step. While others
//     decode, a chunk takes no longer than [Config.MaxStall], by the rate of the chunks
//     before.
//  3. Each attention spec has a lane, with a queue and slots of its own. Lanes take turns;
//     within a lane requests are admitted in the order in which they came.
//  4. Pages are the currency. A request is admitted when its prompt fits beside what runs.
//     When a running sequence needs a page and there is none, idle pages of the prefix
//     cache go first, least recently used, then the youngest sequence is preempted: it
//     loses its pages and computes them again later. The oldest never waits.
//  5. What was preempted prefills its prompt again and replays its tokens as decode steps,
//     which gives the same bits for every attention method, random ones included.
//  6. A request that never fits is refused at once, with the numbers.
//  7. Masks of constraints are made beside the loop. A sequence whose mask is late is parked, and
//     sampled when it comes.
//  8. A request whose context is done leaves before the next step.
//
// Package serve/openai is the same over HTTP.
//
// Start reading at scheduler.go, then lane.go, then task.go.
package serve
