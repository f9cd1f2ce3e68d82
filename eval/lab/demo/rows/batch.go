package main

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strconv"
)

// maxChoices bounds the other right tokens of a row.
const maxChoices = 64

// batch is rows of one length. It is written in little endian as the two numbers
// length and rows (u32), then ids, choices (u16), classes and recipes (u8).
type batch struct {
	length  int
	ids     []uint16    // [rows, length], padded with EOS
	choices [][2]uint16 // [rows, maxChoices] position and token that is right there too
	classes []uint8     // [rows, length] what each token is for the loss
	recipes []uint8     // [rows] number of the recipe
}

func (b *batch) write(w io.Writer) error {
	head := [2]uint32{uint32(b.length), uint32(len(b.recipes))}
	for _, part := range []any{head, b.ids, b.choices, b.classes, b.recipes} {
		if err := binary.Write(w, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	return nil
}

// padding fills the choices that a row does not have.
var padding = [2]uint16{0xffff, 0xffff}

// add appends a row.
func (b *batch) add(d *document, recipe int) {
	for i := range b.length {
		id, class := uint16(1), uint8(classNone)
		if i < len(d.ids) {
			id, class = uint16(d.ids[i]), d.classes[i]
		}
		b.ids, b.classes = append(b.ids, id), append(b.classes, class)
	}
	for i := range maxChoices {
		c := padding
		if i < len(d.choices) {
			c = d.choices[i]
		}
		b.choices = append(b.choices, c)
	}
	b.recipes = append(b.recipes, uint8(recipe))
}

// writeBatches makes the batches on all workers and writes them in their order.
func (o *options) writeBatches(w io.Writer) error {
	vocab, err := loadVocab(o.vocab)
	if err != nil {
		return err
	}
	type result struct {
		batch *batch
		err   error
	}
	done := make([]chan result, o.workers)
	for k := range done {
		done[k] = make(chan result, 4)
		m, err := newMaker(vocab, o.recipes)
		if err != nil {
			return err
		}
		go func() {
			for i := k; i < o.count; i += o.workers {
				b, err := o.batch(m, o.first+i)
				done[k] <- result{b, err}
			}
		}()
	}
	for i := range o.count {
		r := <-done[i%o.workers]
		if r.err != nil {
			return r.err
		}
		if err := r.batch.write(w); err != nil {
			return err
		}
	}
	return nil
}

// batch makes batch number i.
func (o *options) batch(m *maker, i int) (*batch, error) {
	m.rng = rand.New(rand.NewPCG(o.seed, uint64(i)))
	length, err := strconv.Atoi(o.lengths[m.pick(o.lengths)].name)
	if err != nil {
		return nil, err
	}
	b := &batch{length: length}
	for len(b.recipes) < max(1, o.tokens/length) {
		n := m.pick(o.recipes)
		// Rows of one recipe share the search for what fits.
		rows := min(1+m.rng.IntN(8), max(1, o.tokens/length)-len(b.recipes))
		documents, err := m.make(o.recipes[n].name, length, rows)
		if err != nil {
			return nil, err
		}
		for _, d := range documents {
			b.add(d, n)
		}
	}
	return b, nil
}

// writeTexts writes the texts of rows, one JSON string a line.
func (o *options) writeTexts(w io.Writer) error {
	vocab, err := loadVocab(o.vocab)
	if err != nil {
		return err
	}
	m, err := newMaker(vocab, nil)
	if err != nil {
		return err
	}
	out := json.NewEncoder(w)
	for i := range o.count {
		m.rng = rand.New(rand.NewPCG(o.seed, uint64(o.first+i)))
		length, err := strconv.Atoi(o.lengths[m.pick(o.lengths)].name)
		if err != nil {
			return err
		}
		recipe := o.recipes[m.pick(o.recipes)].name
		d, err := m.try(recipe, length, 4*length)
		for failed := 0; err != nil && failed < tries; failed++ {
			d, err = m.try(recipe, length, 4*length)
		}
		if err != nil {
			return err
		}
		if err := out.Encode(m.tok.Decode(d.ids[1:], decodePlain)); err != nil {
			return err
		}
	}
	return nil
}
