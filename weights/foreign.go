package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// convert is the advice for weights in another format.
const convert = "convert it to GGUF first, for example with llama.cpp's convert_hf_to_gguf.py"

// again is the advice for a download that went wrong.
const again = "download the file again"

// foreign lists the beginnings of files that people take for GGUF.
var foreign = []struct{ magic, looksLike, advice string }{
	{"version https://git-lfs", "a git-lfs pointer, which only names the real file", "run `git lfs pull` in the repository it came from"},
	{"<!doctype html", "a web page", "the download saved a page, perhaps for a login: " + again},
	{"<html", "a web page", "the download saved a page, perhaps for a login: " + again},
	{"<?xml", "an XML text, as servers send for an error", again},
	{"pk\x03\x04", "a zip archive, as PyTorch checkpoints (.bin, .pt, .pth) are", convert},
	{"\x80\x02", "a pickled PyTorch checkpoint", convert},
	{"\x1f\x8b", "a gzip archive", "unpack it first"},
	{"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it first"},
	{"lmgg", "a ggml file, the format before GGUF", "get the model in GGUF"},
	{"fmgg", "a ggml file, the format before GGUF", "get the model in GGUF"},
	{"tjgg", "a ggml file, the format before GGUF", "get the model in GGUF"},
	{"algg", "a ggml adapter, the format before GGUF", "get the model in GGUF"},
	{"fugg", "a big-endian GGUF file", "get the little-endian file of the model"},
}

// notGGUF explains what a file that lacks the magic looks like and what to do.
// It expects at least one byte.
func notGGUF(data []byte) error {
	head := data[:min(len(data), 512)]
	text := lowerASCII(bytes.TrimLeft(head, " \t\r\n\ufeff"))
	for _, f := range foreign {
		if strings.HasPrefix(text, f.magic) {
			return fmt.Errorf("not a readable GGUF file: it looks like %s; %s", f.looksLike, f.advice)
		}
	}
	if isSafetensors(head, len(data)) {
		return fmt.Errorf("not a GGUF file: it looks like safetensors; %s", convert)
	}
	if text != "" && (text[0] == '{' || text[0] == '[') {
		return fmt.Errorf("not a GGUF file: it looks like JSON text; name the .gguf file that holds the weights")
	}
	return fmt.Errorf("not a GGUF file: it begins with %q, want %q", head[:min(len(head), 4)], magic)
}

// isSafetensors reports whether head begins a safetensors file of size bytes:
// the length of a JSON header, then the header.
func isSafetensors(head []byte, size int) bool {
	return len(head) > 9 && head[8] == '{' && binary.LittleEndian.Uint64(head) <= uint64(size-8)
}

// lowerASCII lowers A to Z and leaves other bytes alone, whether or not they are
// text.
func lowerASCII(b []byte) string {
	low := bytes.Clone(b)
	for i, c := range low {
		if 'A' <= c && c <= 'Z' {
			low[i] += 'a' - 'A'
		}
	}
	return string(low)
}
