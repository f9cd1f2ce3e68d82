// Package openmodel goes from the flags of a command line to a model that runs: its file,
// its device, its cache and attention, and the text, tokens and chat template beside it.
//
//   - flags.go: which model, device and cache; text.go: which text.
//   - model.go: the open model, and whether memory holds it (address.go).
//   - spec.go: what --attn takes; complete.go: how a shell completes it.
//   - device.go, tokenizer.go, template.go: what the flags name, opened.
//
// Start reading at Flags.Open.
package openmodel
