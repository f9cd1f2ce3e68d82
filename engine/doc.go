// Package engine turns requests into tokens: the only place where model,
// tokenizer, cache, attention and device meet.
//
// The few types:
//
//   - [Engine]: a model and its tokenizer on a device. Open it once.
//   - [Runner]: a cache, an attention policy and the buffers of a pass.
//   - [Sequence]: one text in the cache: Prefill, Step, Generate, Fork, Truncate.
//   - [Replay]: the passes of a Runner over given queries, keys and values.
//   - [Audit]: sparse attention compared with dense, row by row.
//   - [Result]: what a generation wrote, why it stopped and how fast it was.
//
// An Engine may have several Runners; a Runner and its Sequences belong to one
// goroutine.
//
// Start reading at runner.go, then generate.go.
package engine
