package npy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
)

// Array is an array in C order: the last dimension runs fastest.
type Array struct {
	Shape []int
	Data  []float32 // what the shape says; float16 files are converted
}

// magic begins every file; a major and a minor version follow.
const magic = "\x93NUMPY"

// maxHeader bounds the text that describes the array. NumPy itself refuses
// longer ones than 10,000 bytes unless told otherwise.
const maxHeader = 1 << 16

// maxRank is the most dimensions that a file may have.
const maxRank = 32

// ReadFile reads the array of a file.
func ReadFile(path string) (*Array, error) {
	info, err := os.Stat(path) // to open a pipe would wait for who writes to it
	if err != nil {
		open := new(fs.PathError)
		if errors.As(err, &open) {
			open.Op = "open"
		}
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("npy: %s: not a regular file; its size must be known before it is read", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	a, err := Read(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("npy: %s: %w", path, err)
	}
	return a, nil
}

// Read reads an array from the size bytes of r.
func Read(r io.Reader, size int64) (*Array, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	h, err := readHeader(b, size)
	if err != nil {
		return nil, err
	}
	width, err := elementSize(h.descr)
	if err != nil {
		return nil, err
	}
	if h.fortran {
		return nil, errors.New("the array is in Fortran order; save np.ascontiguousarray(x)")
	}
	n, err := elements(h.shape, width, size-h.size)
	if err != nil {
		return nil, err
	}
	a := &Array{Shape: h.shape, Data: make([]float32, n)}
	return a, a.fill(b, width)
}

// fill reads the elements.
func (a *Array) fill(r io.Reader, width int) error {
	buf := make([]byte, 1<<15)
	for done := 0; done < len(a.Data); {
		n := min(len(buf)/width, len(a.Data)-done)
		if _, err := io.ReadFull(r, buf[:n*width]); err != nil {
			return fmt.Errorf("reading element %d of %d: %w", done, len(a.Data), err)
		}
		for i := range n {
			if width == 2 {
				a.Data[done+i] = fromHalf(binary.LittleEndian.Uint16(buf[2*i:]))
			} else {
				a.Data[done+i] = math.Float32frombits(binary.LittleEndian.Uint32(buf[4*i:]))
			}
		}
		done += n
	}
	return nil
}

// elementSize is the bytes of an element.
func elementSize(descr string) (int, error) {
	switch descr {
	case "<f4", "=f4":
		return 4, nil
	case "<f2", "=f2":
		return 2, nil
	}
	return 0, fmt.Errorf("elements are %q, want float32 or float16 in little-endian order; save x.astype('<f4')", descr)
}

// elements is the number of elements of a shape, which must fill size bytes.
func elements(shape []int, width int, size int64) (int, error) {
	n := int64(1)
	if slices.Contains(shape, 0) {
		n = 0
	}
	for _, d := range shape {
		if n > 0 && n > size/int64(d) {
			return 0, fmt.Errorf("shape %v needs more than the %d bytes that follow the header; the file is cut", shape, size)
		}
		n *= int64(d)
	}
	if n*int64(width) != size {
		return 0, fmt.Errorf("shape %v needs %d bytes after the header, there are %d", shape, n*int64(width), size)
	}
	return int(n), nil
}

// Write writes an array as float32.
func Write(w io.Writer, a *Array) error {
	var dims strings.Builder
	for i, d := range a.Shape {
		if i > 0 {
			dims.WriteString(", ")
		}
		fmt.Fprint(&dims, d)
	}
	if len(a.Shape) == 1 {
		dims.WriteString(",")
	}
	text := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", dims.String())
	// The data begin at a multiple of 64 bytes, and the header ends in a newline.
	pad := 63 - (len(magic)+4+len(text))%64
	text += strings.Repeat(" ", pad) + "\n"
	b := bufio.NewWriterSize(w, 1<<16)
	b.WriteString(magic + "\x01\x00") // errors of a bufio.Writer stick until Flush
	b.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(text))))
	b.WriteString(text)
	var one [4]byte
	for _, v := range a.Data {
		binary.LittleEndian.PutUint32(one[:], math.Float32bits(v))
		b.Write(one[:])
	}
	return b.Flush()
}

// fromHalf is the value of a float16.
func fromHalf(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch exp {
	case 0:
		v := float32(frac) / (1 << 24)
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
