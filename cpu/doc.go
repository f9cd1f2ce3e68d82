// Package cpu is the CPU backend of package device: it runs every call on a pool of threads, and it
// is the definition that other backends are compared with.
//
// [Open], registered with package device under the name "cpu", makes a device (dev, cpu.go). It
// owns the memory, the thread pool and the first failure. Its queue (ops, do.go) runs calls one
// after the other; a graph (graph.go) is the list of calls that a captured step consists of.
//
// # Files
//
// A call is a method of ops, and its scratch memory is a task. Files are named by verb, then by
// rule; summarize.go, score.go, select.go and sample.go switch on the rule.
//
//	math*.go matmul.go    the transformer: embedding, norms, RoPE, SwiGLU, matrix products
//	paged*.go             the paged KV cache: pages, rows and blocks of a call, Append
//	plan.go               the attention mask of a device.Plan, and its lists
//	attend*.go            attention: definition, decode, prefill, gathered lists
//	summarize_*.go        indexes that are stored beside the pages
//	score_*.go            numbers for positions, parts of pages and blocks
//	select_*.go           lists, from scores or codes
//	sample_*.go           lists and queries by addressed random numbers; tokens
//	walk.go               products of rows with the matrix of block pairs
//
// Several rules share topk.go and topp.go (top-k and top-p of a row), scored.go (exact scores that
// attention reads instead of keys), softmax.go, key_tiles.go (q·k by
// tiles), lsh.go and buckets.go (codes of locality-sensitive hashing and their hash tables),
// sign_net.go, pooled.go and out_list.go.
//
// # Attention
//
// attendRow (attend.go) is the definition of attention: a loop in float64 over the positions
// that mask (plan.go) says a row reads. It runs where a head dimension does not fill vector
// registers. The fast paths are an online softmax over tiles of 64 positions
// (attend_tile.go), with the kernels of package vec for the instruction set of the processor:
// a decode step is split along the past (attend_decode.go), a prefill goes through blocks of
// rows (attend_prefill.go), and lists of positions are gathered from the cache without a copy
// (attend_listed.go).
//
// # What results depend on
//
// Results do not depend on the number of threads. A row of a prefill does not depend on the
// chunk that it arrived in: a tile is a page of absolute positions, and tiles are added in
// ascending order. A row alone, as in a decode step, may differ in its last bits from the same
// row in a prefill.
//
// Device data that breaks the contract (an id outside its table, a page number outside the
// cache) never reads foreign memory: the call skips what it cannot compute, and Sync returns
// the failure. Shapes that break it panic: see package device.
//
// Start reading at cpu.go, then do.go, math.go and plan.go.
package cpu
