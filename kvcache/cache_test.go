package kvcache

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// host is a device of plain bytes that can copy, which is all the cache needs.
type host struct{ device.Device }

type hostMemory []byte

func (m hostMemory) Size() int { return len(m) }

type hostOps struct {
	device.Queue
	arena device.Arena
}

func (o *hostOps) Arena() *device.Arena { return &o.arena }
func (o *hostOps) Do(c device.Call) {
	move := c.(*device.Copy)
	copy(bytesAt(move.Dst), bytesAt(move.Src))
	o.arena.Reset()
}

func (host) Queue() device.Queue                 { return &hostOps{} }
func (host) Write(dst device.Tensor, src []byte) { copy(bytesAt(dst), src) }
func bytesAt(t device.Tensor) []byte             { return t.Memory().(hostMemory)[t.Offset():][:t.Size()] }
func (host) Alloc(dt device.DType, dims ...int) (device.Tensor, error) {
	n := dt.RowSize(dims[len(dims)-1])
	for _, d := range dims[:len(dims)-1] {
		n *= d
	}
	return device.NewTensor(make(hostMemory, n), 0, dt, dims...), nil
}

func newCache(t *testing.T, conf Config) *Cache {
	t.Helper()
	c, err := New(host{}, conf)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// at is the first bytes of the key of a position, as a kernel would find it.
func (s *Seq) at(layer, pos int) []byte {
	c := s.cache
	page := int(c.row(layer, s.slot)[pos/device.PageLen])
	head := c.k.At(page).At(0)
	return bytesAt(head.Rows(pos%device.PageLen, pos%device.PageLen+1))[:4]
}

// model is what a sequence should hold: the stamp written at each position, by
// layer.
type model [][]uint32

// TestRandomOperations runs random operations against a model of plain slices:
// what is read through the page tables is what was written, no sequence sees
// another's writes, and the accounts stay true.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		conf := Config{Layers: 3, KVHeads: 1, HeadDim: 4, MaxLen: 300, Slots: 4, Pages: 3 * 9, DType: device.F32}
		c := newCache(t, conf)
		seqs := map[*Seq]model{}
		var stamp uint32
		for range 300 {
			step(t, r, c, seqs, &stamp)
			if err := c.Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			checkContents(t, seqs)
		}
	}
}

// step does one random operation on the cache and on the model.
func step(t *testing.T, r *rand.Rand, c *Cache, seqs map[*Seq]model, stamp *uint32) {
	t.Helper()
	s := pick(r, seqs)
	switch op := r.IntN(10); {
	case s == nil || op == 0:
		if s, err := c.Open(); err == nil {
			seqs[s] = make(model, 3)
		} else if len(seqs) < 4 || !errors.Is(err, ErrNoSlot) {
			t.Fatalf("Open: %v with %d sequences", err, len(seqs))
		}
	case op == 1:
		if f, err := s.Fork(); err == nil {
			m := make(model, 3)
			for l := range m {
				m[l] = slices.Clone(seqs[s][l])
			}
			seqs[f] = m
		}
	case op == 2:
		s.Close()
		s.Close()
		delete(seqs, s)
	case op == 3:
		n := r.IntN(s.Len() + 1)
		s.Truncate(n)
		for l := range seqs[s] {
			seqs[s][l] = seqs[s][l][:n]
		}
	default:
		extend(t, r, s, seqs[s], stamp)
	}
}

// pick chooses a sequence, in slot order so that a seed repeats.
func pick(r *rand.Rand, seqs map[*Seq]model) *Seq {
	var all []*Seq
	for s := range seqs {
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *Seq) int { return a.slot - b.slot })
	return all[r.IntN(len(all))]
}

// extend adds positions and stamps them in every layer.
func extend(t *testing.T, r *rand.Rand, s *Seq, m model, stamp *uint32) {
	t.Helper()
	n := []int{1, 1, 1, 63, 64, 65, 130}[r.IntN(7)]
	from, free := s.Len(), s.cache.FreePages()
	if err := s.Extend(n, nil); err != nil {
		var full *FullError
		if !errors.As(err, &full) || full.Asked != from+n || full.Fit < from || full.Fit >= full.Asked {
			t.Fatalf("Extend(%d) of %d with %d pages free: %v", n, from, free, err)
		}
		if s.Len() != from || s.cache.FreePages() != free {
			t.Fatal("a failed Extend changed the sequence")
		}
		return
	}
	for l := range m {
		for p := from; p < from+n; p++ {
			*stamp++
			binary.LittleEndian.PutUint32(s.at(l, p), *stamp)
			m[l] = append(m[l], *stamp)
		}
	}
}

func checkContents(t *testing.T, seqs map[*Seq]model) {
	t.Helper()
	for s, m := range seqs {
		for l := range m {
			for p, want := range m[l] {
				if got := binary.LittleEndian.Uint32(s.at(l, p)); got != want {
					t.Fatalf("slot %d layer %d position %d holds %d, want %d", s.slot, l, p, got, want)
				}
			}
		}
	}
}

func TestFrozenLayersShareWholePages(t *testing.T) {
	c := newCache(t, Config{Layers: 3, KVHeads: 1, HeadDim: 4, MaxLen: 512, Slots: 2, DType: device.F16})
	s, _ := c.Open()
	aliased := func(layer int) (from, to int) { // pages 1 and 2 of layer 2
		return []int{0, 0, 16}[layer], []int{300, 0, 200}[layer]
	}
	if err := s.Extend(250, aliased); err != nil {
		t.Fatal(err)
	}
	saved := 2 * c.conf.PageSize()
	if got, want := c.Used(), 3*4*c.conf.PageSize()-saved; got != want {
		t.Errorf("used %d bytes, want %d", got, want)
	}
	if got := s.Shared(); got != saved {
		t.Errorf("shared %d bytes, want %d", got, saved)
	}
	for i, shared := range []bool{false, true, true, false} {
		if one, two := c.row(1, s.slot)[i], c.row(2, s.slot)[i]; (one == two) != shared {
			t.Errorf("page %d of layers 1 and 2: %d and %d, shared want %v", i, one, two, shared)
		}
	}
	s.Truncate(70) // cuts into a shared page: writing must not reach layer 1
	if err := s.Extend(1, nil); err != nil {
		t.Fatal(err)
	}
	if c.row(1, s.slot)[1] == c.row(2, s.slot)[1] {
		t.Error("a page of two layers would be written")
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

func TestFullSaysHowMuchFits(t *testing.T) {
	c := newCache(t, Config{Layers: 2, KVHeads: 1, HeadDim: 4, MaxLen: 1000, Slots: 2, Pages: 6, DType: device.F16})
	s, _ := c.Open()
	err := s.Extend(500, nil)
	if err == nil || !strings.Contains(err.Error(), "500 tokens asked for, 192 fit") {
		t.Errorf("err = %v", err)
	}
	if err := s.Extend(192, nil); err != nil {
		t.Errorf("what was said to fit does not: %v", err)
	}
	c = newCache(t, Config{Layers: 2, KVHeads: 1, HeadDim: 4, MaxLen: 100, Slots: 1, DType: device.F16})
	s, _ = c.Open()
	if err := s.Extend(101, nil); err == nil || !strings.Contains(err.Error(), "101 tokens asked for, 100 fit") {
		t.Errorf("err = %v", err)
	}
}

func TestFlushWritesTablesAndLengths(t *testing.T) {
	c := newCache(t, Config{Layers: 2, KVHeads: 1, HeadDim: 4, MaxLen: 128, Slots: 3, DType: device.F16})
	a, _ := c.Open()
	b, _ := c.Open()
	if err := errors.Join(a.Extend(65, nil), b.Extend(3, nil)); err != nil {
		t.Fatal(err)
	}
	c.Flush(b)
	lens := bytesAt(c.Layer(0).Len)
	if lens[0] != 0 || lens[4] != 3 {
		t.Errorf("lengths %v: want 0 for the idle slot and 3", lens)
	}
	for l := range 2 {
		if got, want := bytesAt(c.Slot(l, 0).Pages), bytesOf(c.row(l, 0)); !slices.Equal(got, want) {
			t.Errorf("layer %d pages %v on the device, want %v", l, got, want)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	good := Config{Layers: 1, KVHeads: 1, HeadDim: 4, MaxLen: 1, Slots: 1, DType: device.F16}
	for _, spoil := range []func(*Config){
		func(c *Config) { c.Layers = 0 }, func(c *Config) { c.MaxLen = 0 },
		func(c *Config) { c.Slots = -1 }, func(c *Config) { c.DType = device.Q8_0 },
	} {
		conf := good
		spoil(&conf)
		if _, err := New(host{}, conf); err == nil {
			t.Errorf("New(%+v): no error", conf)
		}
	}
}

func TestRepeatCopiesPagesInTurn(t *testing.T) {
	c := newCache(t, Config{Layers: 2, KVHeads: 1, HeadDim: 4, MaxLen: 400, Slots: 1, DType: device.F32})
	s, _ := c.Open()
	if err := s.Repeat(1); err == nil {
		t.Error("nothing was repeated without an error")
	}
	if err := s.Extend(2*device.PageLen, nil); err != nil {
		t.Fatal(err)
	}
	for l := range 2 {
		for p := range 2 * device.PageLen {
			binary.LittleEndian.PutUint32(s.at(l, p), uint32(1000*l+p))
		}
	}
	if err := s.Repeat(200); err != nil {
		t.Fatal(err)
	}
	if s.Len() != 2*device.PageLen+200 {
		t.Errorf("length %d", s.Len())
	}
	for l := range 2 {
		for p := range s.Len() {
			if got, want := binary.LittleEndian.Uint32(s.at(l, p)), uint32(1000*l+p%(2*device.PageLen)); got != want {
				t.Fatalf("layer %d position %d holds %d, want %d", l, p, got, want)
			}
		}
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	if err := s.Repeat(1); err == nil {
		t.Error("a sequence that ends inside a page was repeated without an error")
	}
	s.Truncate(2 * device.PageLen)
	var full *FullError
	if err := s.Repeat(1000); !errors.As(err, &full) || s.Len() != 2*device.PageLen {
		t.Errorf("Repeat(1000): %v, length %d", err, s.Len())
	}
}
