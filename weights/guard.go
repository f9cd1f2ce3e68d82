package weights

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/ollama/ollama/fs/ggml"

	"github.com/gollm/gollm/internal/quote"
)

// The limits that keep a hostile header cheap. Real models stay far below: a
// vocabulary of 262,144 tokens with its merges makes a header of about 16 MB.
const (
	maxHeader       = 64 << 20 // bytes before the tensor data
	maxKeys         = 1 << 16
	maxTensors      = 1 << 16
	maxKeyLen       = 64 << 10 // bytes
	maxArrays       = 1 << 23  // elements of all arrays together; Gemma 3 has 1.3 million
	maxTensorName   = 256      // bytes
	maxDims         = 4
	maxElements     = min(1<<48, math.MaxInt) // of one tensor
	minAlignment    = 8                       // what GGUF demands
	plainAlignment  = 32                      // where the file says nothing
	keyMinSize      = 8 + 1 + 4 + 1
	tensorMinSize   = 8 + 1 + 4 + 8 + 4 + 8
	magic           = "GGUF"
	keyAlignment    = "general.alignment"
	bigEndianBorder = 1 << 16 // no version is that high, but a byte-swapped one is
)

// header is what the guard learns about a file.
type header struct {
	version    uint32
	alignment  uint64
	dataOffset uint64           // bytes; where the tensor data begins
	keys       []string         // in file order
	values     map[string]value // by key
	tensors    int              // number of tensors
}

// value says where the value of a key lies in the file.
type value struct {
	typ, elem valueType // elem is the type of an array's elements
	n         int       // number of elements of an array
	at        int       // bytes; where the scalar, the string's length or the first element begins
}

// String describes the value's type, for example "array of 3 i32".
func (v value) String() string {
	if v.typ == typeArray {
		return fmt.Sprintf("array of %d %v", v.n, v.elem)
	}
	return v.typ.String()
}

// guard walks the header of a GGUF file once and returns an error for
// everything that would make the decoder crash, hang, take memory without
// bound, or hand out a tensor that is not inside the file. It allocates in
// proportion to the bytes it has seen, never to a length that it has read.
func guard(data []byte) (*header, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("the file is empty, want a GGUF file; download or copy it again")
	}
	if len(data) < len(magic) || string(data[:len(magic)]) != magic {
		return nil, notGGUF(data)
	}
	c := &cursor{data: data, at: len(magic)}
	h := &header{values: make(map[string]value)}
	if err := h.readVersion(c); err != nil {
		return nil, err
	}
	tensors, keys := c.u64("the number of tensors"), c.u64("the number of keys")
	c.room("keys", keys, keyMinSize, maxKeys)
	c.room("tensors", tensors, tensorMinSize, maxTensors)
	h.readKeys(c, keys)
	h.readAlignment(c)
	spans := h.readTensors(c, tensors)
	if c.err != nil {
		return nil, c.err
	}
	h.dataOffset = (uint64(c.at) + h.alignment - 1) &^ (h.alignment - 1)
	return h, h.place(spans, uint64(len(data)))
}

// readVersion reads the version and refuses the ones that differ in layout.
func (h *header) readVersion(c *cursor) error {
	h.version = c.u32("the version")
	switch {
	case c.err != nil:
		return c.err
	case h.version == 2 || h.version == 3:
		return nil
	case h.version >= bigEndianBorder && bits.ReverseBytes32(h.version) < bigEndianBorder:
		return fmt.Errorf("big-endian GGUF version %d, want little-endian; get the little-endian file of the model",
			bits.ReverseBytes32(h.version))
	}
	return fmt.Errorf("GGUF version %d, want 2 or 3; convert the model again with a current converter", h.version)
}

// readKeys walks n keys and their values.
func (h *header) readKeys(c *cursor, n uint64) {
	for i := uint64(0); i < n && c.err == nil; i++ {
		c.in("key", i, "")
		key := string(c.text("its name", maxKeyLen))
		c.in("key", i, key)
		if c.err == nil && key == "" {
			c.fail("the name is empty")
		}
		if _, twice := h.values[key]; twice {
			c.fail("the name occurs twice, want unique names")
		}
		v := c.value()
		if c.err == nil {
			h.keys = append(h.keys, key)
			h.values[key] = v
		}
	}
}

// readAlignment sets the alignment that the file gives, or GGUF's default.
func (h *header) readAlignment(c *cursor) {
	h.alignment = plainAlignment
	v, ok := h.values[keyAlignment]
	if !ok || c.err != nil {
		return
	}
	c.in("key", 0, keyAlignment)
	if v.typ != typeU32 {
		c.fail("the value is of type %v, want u32", v)
		return
	}
	a := binary.LittleEndian.Uint32(c.data[v.at:])
	if a < minAlignment || bits.OnesCount32(a) != 1 {
		c.fail("the alignment is %d, want a power of two from %d", a, minAlignment)
	}
	h.alignment = uint64(a)
}

// span is the place of a tensor, in bytes from the start of the tensor data.
type span struct {
	name         string
	offset, size uint64
}

// readTensors walks the tensor table of n entries.
func (h *header) readTensors(c *cursor, n uint64) []span {
	var spans []span
	seen := make(map[string]bool)
	for i := uint64(0); i < n && c.err == nil; i++ {
		c.in("tensor", i, "")
		name := string(c.text("its name", maxTensorName))
		c.in("tensor", i, name)
		if c.err == nil && name == "" {
			c.fail("the name is empty")
		}
		if seen[name] {
			c.fail("the name occurs twice, want unique names")
		}
		seen[name] = true
		dims := c.dims()
		size := c.size(c.u32("its type"), dims)
		offset := c.u64("its offset")
		if c.err == nil && offset%h.alignment != 0 {
			c.fail("its data is at offset %d, want a multiple of the alignment %d", offset, h.alignment)
		}
		spans = append(spans, span{name, offset, size})
	}
	h.tensors = len(spans)
	return spans
}

// place checks that every span lies inside a file of size bytes and that no
// two of them overlap.
func (h *header) place(spans []span, size uint64) error {
	room := uint64(0)
	if size > h.dataOffset {
		room = size - h.dataOffset
	}
	for _, s := range spans {
		if size < h.dataOffset || s.offset > room || s.size > room-s.offset { // s.size may be 0
			return fmt.Errorf("tensor %s: %d bytes at offset %d of the tensor data, which has %d bytes: the file is cut short or damaged; download it again",
				quote.Short(s.name), s.size, s.offset, room)
		}
	}
	spans = slices.DeleteFunc(spans, func(s span) bool { return s.size == 0 }) // of a type whose size is not known
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.offset, b.offset) })
	for i := 1; i < len(spans); i++ {
		a, b := spans[i-1], spans[i]
		if b.offset-a.offset < a.size {
			return fmt.Errorf("tensor %s: its data at offset %d overlaps that of tensor %s, %d bytes at offset %d; the file is damaged",
				quote.Short(b.name), b.offset, quote.Short(a.name), a.size, a.offset)
		}
	}
	return nil
}

// cursor reads a header from front to back. The first failure sticks; after it
// every read returns zeros.
type cursor struct {
	data     []byte
	at       int    // bytes read
	elements uint64 // of all arrays so far
	kind     string // what is being read, see in
	index    uint64
	name     string
	err      error
}

// in says what is being read, for errors: key or tensor i, from 0, and its name
// once that is known.
func (c *cursor) in(kind string, i uint64, name string) { c.kind, c.index, c.name = kind, i, name }

// fail records the first failure, with what was being read.
func (c *cursor) fail(format string, args ...any) {
	if c.err != nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	switch {
	case c.name != "":
		text = fmt.Sprintf("%s %s: %s", c.kind, quote.Short(c.name), text)
	case c.kind != "":
		text = fmt.Sprintf("%s number %d: %s", c.kind, c.index+1, text)
	}
	c.err = fmt.Errorf("%s", text)
}

// left is the number of bytes that the rest of the header can have.
func (c *cursor) left() uint64 { return uint64(min(len(c.data), maxHeader) - c.at) }

// take reads n bytes of the part of the header that what names.
func (c *cursor) take(n uint64, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n > c.left() {
		c.short(what, n)
		return nil
	}
	b := c.data[c.at : c.at+int(n)]
	c.at += int(n)
	return b
}

// short fails because what takes n bytes and fewer are left.
func (c *cursor) short(what string, n uint64) {
	if len(c.data) > maxHeader {
		c.fail("%s takes %d bytes at byte %d, want a header of at most %d bytes", what, n, c.at, maxHeader)
		return
	}
	c.fail("%s takes %d bytes at byte %d, but only %d are left: the file is cut short or damaged; download it again",
		what, n, c.at, c.left())
}

func (c *cursor) u32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text reads a length and that many bytes, at most limit.
func (c *cursor) text(what string, limit uint64) []byte {
	if c.err == nil && c.left() < 8 {
		c.short("the length of "+what, 8)
	}
	n := c.u64(what)
	if n > limit && n <= c.left() {
		c.fail("%s has %d bytes, want at most %d", what, n, limit)
	}
	return c.take(n, what)
}

// room fails where n things of at least size bytes cannot follow.
func (c *cursor) room(what string, n, size, limit uint64) {
	if c.err != nil {
		return
	}
	if most := c.left() / size; n > most {
		c.fail("the header announces %d %s, but has room for at most %d: the file is cut short or damaged; download it again", n, what, most)
	}
	if n > limit {
		c.fail("the header announces %d %s, want at most %d", n, what, limit)
	}
}

// value walks a value with its type before it.
func (c *cursor) value() value {
	v := value{typ: valueType(c.u32("the type of its value"))}
	v.at = c.at
	switch {
	case c.err != nil:
	case v.typ >= numValueTypes:
		c.fail("its value is of type %d, want 0 to %d", uint32(v.typ), numValueTypes-1)
	case v.typ == typeArray:
		c.array(&v)
	case v.typ == typeString:
		c.text("its value", maxHeader)
	default:
		c.take(v.typ.minSize(), "its value")
	}
	return v
}

// array walks the elements of an array.
func (c *cursor) array(v *value) {
	v.elem = valueType(c.u32("the type of its elements"))
	n := c.u64("the number of its elements")
	switch {
	case c.err != nil:
		return
	case v.elem == typeArray:
		c.fail("its value is an array of arrays, want an array of numbers, bools or strings")
		return
	case v.elem >= numValueTypes:
		c.fail("its elements are of type %d, want 0 to %d", uint32(v.elem), numValueTypes-1)
		return
	}
	if most := c.left() / v.elem.minSize(); n > most {
		c.fail("its value is an array of %d %v, but the header has room for at most %d: the file is cut short or damaged; download it again", n, v.elem, most)
		return
	}
	if c.elements += n; c.elements > maxArrays {
		c.fail("its value is an array of %d %v, and the header has %d elements of arrays with it, want at most %d", n, v.elem, c.elements, maxArrays)
		return
	}
	v.n, v.at = int(n), c.at
	if v.elem != typeString {
		c.take(n*v.elem.minSize(), "the array")
		return
	}
	for i := uint64(0); i < n && c.err == nil; i++ {
		c.text("a string of its array", maxHeader)
	}
}

// dims reads the dimensions of a tensor, fastest first.
func (c *cursor) dims() []uint64 {
	n := c.u32("the number of its dimensions")
	if c.err == nil && (n == 0 || n > maxDims) {
		c.fail("it has %d dimensions, want 1 to %d", n, maxDims)
	}
	dims := make([]uint64, 0, maxDims)
	for i := uint32(0); i < n && c.err == nil; i++ {
		dims = append(dims, c.u64("a dimension"))
	}
	return dims
}

// size is the number of bytes that a tensor takes, of a type with number n in
// GGUF. A type that gollm does not compute with takes what the decoder believes,
// which is nothing where it does not know the type either: such a tensor can be
// listed, and not read.
func (c *cursor) size(n uint32, dims []uint64) uint64 {
	if c.err != nil {
		return 0
	}
	elements := uint64(1)
	for _, d := range dims {
		high, low := bits.Mul64(elements, d)
		if d == 0 || high != 0 || low > maxElements {
			c.fail("its dimensions are %d, want each at least 1 and a product of at most %d", dims, uint64(maxElements))
			return 0
		}
		elements = low
	}
	t, ok := tensorTypes[n]
	if !ok {
		return foreignSize(n, elements)
	}
	block := uint64(t.BlockLen())
	if dims[0]%block != 0 {
		c.fail("its rows have %d elements, want a multiple of %d, the block of %v", dims[0], block, t)
	}
	return elements / block * uint64(t.BlockSize())
}

// foreignSize is the number of bytes of elements of a type that gollm does not
// compute with.
func foreignSize(n uint32, elements uint64) uint64 {
	t := ggml.TensorType(n)
	return elements * t.TypeSize() / t.BlockSize()
}
