// Package model is the transformer of Llama and its relatives: its configuration, its
// weights and one forward pass, written once in terms of the calls of package device.
//
// The few types:
//
//   - [Config]: the hyper-parameters, read from GGUF metadata and checked.
//   - [Model]: the weights on a device.
//   - [Scratch]: the activations of one pass, allocated once.
//
// Llama-3.x, Llama-2 and Mistral-7B differ in fields of Config only, and so do the other
// families (family.go). Dense and sparse attention, prefill chunks and decode steps are the
// same [Model.Forward].
//
// Start reading at forward.go.
package model
