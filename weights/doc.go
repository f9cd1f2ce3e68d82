// Package weights turns GGUF files into tensors without copying them: a file is
// mapped into memory, checked once from front to back, and then looked up by
// name.
//
// The few types:
//
//   - [File]: an open model, of one file or of all the parts of a split one;
//     its metadata by key and its tensors by name.
//   - [Tensor]: a name, a type, a shape and the bytes in the map.
//   - [Writer]: makes GGUF files, for tests and tools.
//
// The rules:
//
//  1. A file is untrusted. guard.go walks the header with the size of the file
//     in hand before github.com/ollama/ollama/fs/ggml, which decodes it, sees a
//     byte. What the guard accepts, the decoder accepts, and every tensor lies
//     inside the file.
//  2. A shape is row-major, slowest dimension first: the reverse of GGUF's. The
//     last dimension is a row.
//  3. A value of the wrong type is an error, never a default; integers of any
//     width are read as what they say.
//  4. A tensor of a type that gollm does not compute with is listed, and refused
//     when it is asked for.
//  5. An error names the file, the key or tensor, what was found and what was
//     expected.
//
// What a model needs from its file, such as shapes that fit its
// hyper-parameters, is not known here: package model checks it.
//
// Start reading at file.go, then guard.go.
package weights
