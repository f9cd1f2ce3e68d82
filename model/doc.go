// Package model is the Llama transformer: its configuration, its weights and
// one forward pass, written once in terms of the calls of package device.
//
// The few types:
//
//   - [Config]: the hyper-parameters, read from GGUF metadata and checked.
//   - [Model]: the weights on a device.
//   - [Scratch]: the activations of one pass, allocated once.
//
// Llama-3.x, Llama-2 and Mistral-7B differ in fields of Config only. Dense and
// sparse attention, prefill chunks and decode steps are the same [Model.Forward].
//
// Start reading at forward.go.
package model
