// Package sparse is the attention of the engine: which stored positions each
// query row reads, in prefill and in decode.
//
// The few types:
//
//   - [Pass]: one trip through the layers; what a method may see of it.
//   - [Policy]: the attention of one engine. The zero Policy is dense.
//   - [Parse]: text to policy, the grammar of the flag --attn.
//
// Start reading at pass.go, then policy.go.
package sparse
