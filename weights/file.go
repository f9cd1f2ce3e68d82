package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/ollama/ollama/fs/ggml"

	"github.com/gollm/gollm/internal/quote"
)

// File is an open model: the metadata and the tensors of one GGUF file, or of
// all the parts of a split one. It is safe for concurrent reading.
type File struct {
	path    string // as it was given to Open
	parts   []*part
	tensors []Tensor
	index   map[string]int // tensor name to its place in tensors
}

// part is one GGUF file in memory.
type part struct {
	path    string
	data    []byte
	head    *header
	kv      ggml.KV
	table   []*ggml.Tensor
	release func() error
}

// Open opens the GGUF file at path, or the whole split model that it is a part
// of. It maps the files and copies no tensor; reading a tensor brings it in
// from disk. The files must not change until Close: reading a mapped file that was cut
// short kills the process, unless [Guarded] makes an error of it.
func Open(path string) (*File, error) {
	first, err := openPart(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, parts: []*part{first}}
	if err := f.complete(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Parse reads a GGUF file that is in memory already; name stands for its path
// in errors. The tensors alias data, which should be aligned as make aligns it.
func Parse(name string, data []byte) (*File, error) {
	p := &part{path: name, data: data, release: func() error { return nil }}
	if err := p.parse(); err != nil {
		return nil, err
	}
	f := &File{path: name, parts: []*part{p}}
	if n, err := f.UintOr(keySplitCount, 1); err != nil {
		return nil, err
	} else if n > 1 {
		return nil, p.errorf("key %q: one of %d parts, want a whole model; open it from disk", keySplitCount, n)
	}
	if err := f.collect(); err != nil {
		return nil, err
	}
	return f, nil
}

// openPart maps and checks one file.
func openPart(path string) (*part, error) {
	info, err := os.Stat(path) // before opening, which would wait on a named pipe
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("weights: %s: %s, want a GGUF file", path, irregular(info.Mode()))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	p := &part{path: path, release: func() error { return nil }}
	if size := info.Size(); size > 0 {
		if int64(int(size)) != size {
			return nil, p.errorf("%d bytes are more than this machine can address", size)
		}
		if err := p.load(file, int(size)); err != nil {
			return nil, p.errorf("%w", err)
		}
	}
	if err := Guarded(p.parse); err != nil {
		return nil, errors.Join(err, p.release())
	}
	return p, nil
}

// load brings the size bytes of file into memory.
func (p *part) load(file *os.File, size int) error {
	data, release, err := load(file, size)
	if err != nil {
		return err
	}
	closed := mappings.add(p.path, data)
	p.data = data
	p.release = func() error {
		closed()
		return release()
	}
	return nil
}

// irregular says what a path leads to that is not a regular file.
func irregular(m os.FileMode) string {
	if m.IsDir() {
		return "a directory"
	}
	return "a device, pipe or socket"
}

// errorf is an error about the part's file.
func (p *part) errorf(format string, args ...any) error {
	return fmt.Errorf("weights: %s: %w", p.path, fmt.Errorf(format, args...))
}

// parse checks and decodes the part's bytes.
func (p *part) parse() (err error) {
	if p.head, err = guard(p.data); err != nil {
		return p.errorf("%w", err)
	}
	g, err := ggml.Decode(bytes.NewReader(p.data), -1)
	if err != nil {
		return p.errorf("decoding: %w", err)
	}
	p.kv, p.table = g.KV(), g.Tensors().Items()
	return nil
}

// collect fills the tensors and the index from all parts.
func (f *File) collect() error {
	f.index = make(map[string]int)
	for _, p := range f.parts {
		for _, entry := range p.table {
			t := p.tensor(entry)
			if i, twice := f.index[t.Name]; twice {
				return p.errorf("tensor %s is also in %s, want each tensor once", quote.Short(t.Name), f.tensors[i].file)
			}
			f.index[t.Name] = len(f.tensors)
			f.tensors = append(f.tensors, t)
		}
	}
	return nil
}

// Close ends the mapping. Neither f nor any tensor's Data may be used after it.
func (f *File) Close() error {
	var errs []error
	for _, p := range f.parts {
		errs = append(errs, p.release())
	}
	f.parts, f.tensors, f.index = nil, nil, nil
	return errors.Join(errs...)
}

// Path is the path that the file was opened by.
func (f *File) Path() string { return f.path }

// Parts lists the paths of all files of the model, in order: one, unless the
// model is split.
func (f *File) Parts() []string {
	paths := make([]string, len(f.parts))
	for i, p := range f.parts {
		paths[i] = p.path
	}
	return paths
}

// Size is the number of bytes of all files of the model.
func (f *File) Size() int64 {
	n := int64(0)
	for _, p := range f.parts {
		n += int64(len(p.data))
	}
	return n
}

// sample is the number of bytes that Hash reads in each place of a tensor.
const sample = 4 << 10

// Hash identifies the model, in 64 hexadecimal digits, without reading it all.
// It is the SHA-256, over all parts in order, of the file's size (u64, little
// endian), its bytes before the tensor data, and the first, middle and last 4
// KiB of each tensor in file order (all of a tensor of at most 12 KiB). Two
// files that differ only elsewhere, in the inside of a large tensor or in the
// padding, have the same Hash.
func (f *File) Hash() string {
	h := sha256.New()
	for _, p := range f.parts {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(p.data)))
		h.Write(size[:])
		h.Write(p.data[:min(p.head.dataOffset, uint64(len(p.data)))])
		for _, entry := range p.table {
			for _, b := range samples(p.tensor(entry).Data) {
				h.Write(b)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// samples are the parts of a tensor's data that Hash reads.
func samples(b []byte) [][]byte {
	if len(b) <= 3*sample {
		return [][]byte{b}
	}
	mid := len(b)/2 - sample/2
	return [][]byte{b[:sample], b[mid : mid+sample], b[len(b)-sample:]}
}
