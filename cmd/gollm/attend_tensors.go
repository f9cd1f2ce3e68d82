package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/npy"
	"github.com/gollm/gollm/internal/userfile"
)

// tensors is the queries, keys and values of all layers.
type tensors struct {
	layers                 []engine.QKV
	heads, kvHeads, n, dim int
	layered                bool // the files say so, even of one layer
}

// load reads the files that the flags name.
func (a *attendFlags) load() (*tensors, error) {
	if len(a.layers) == 0 {
		t := &tensors{}
		return t, t.addFiles([3]string{"--q", "--k", "--v"}, [3]string{a.q, a.k, a.v})
	}
	t := &tensors{layered: true}
	for _, triple := range a.layers {
		const flag = "--layers-of"
		if err := t.addFiles([3]string{flag, flag, flag}, [3]string(strings.Split(triple, ","))); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// addFiles appends the layer, or the layers, of three files: queries, keys and
// values, which the flags named.
func (t *tensors) addFiles(flags, paths [3]string) error {
	q, k, v := paths[0], paths[1], paths[2]
	var arrays [3]*npy.Array
	for i, path := range paths {
		a, err := npy.ReadFile(path)
		if err != nil {
			return userfile.OpenError(flags[i], path, "a .npy file", err)
		}
		if rank := len(a.Shape); rank != 3 && (rank != 4 || t.layered) {
			return fmt.Errorf("%s: shape %v, want [heads, n, d], or without --layers-of [layers, heads, n, d]", path, a.Shape)
		}
		arrays[i] = a
	}
	layers, heads, n, dim := shapeOf(arrays[0])
	kvLayers, kvHeads, kvN, kvDim := shapeOf(arrays[1])
	qShape, kShape, vShape := arrays[0].Shape, arrays[1].Shape, arrays[2].Shape
	switch {
	case heads*n*dim*layers*kvHeads == 0:
		return fmt.Errorf("%s %v, %s %v: every dimension must be at least 1", q, qShape, k, kShape)
	case kvLayers != layers || kvN != n || kvDim != dim || len(kShape) != len(qShape):
		return fmt.Errorf("%s %v does not go with %s %v: want the same layers, n and d", k, kShape, q, qShape)
	case fmt.Sprint(vShape) != fmt.Sprint(kShape):
		return fmt.Errorf("%s %v, want the shape of %s %v", v, vShape, k, kShape)
	case heads%kvHeads != 0:
		return fmt.Errorf("%s has %d heads and %s %d, want a multiple", q, heads, k, kvHeads)
	}
	if len(t.layers) == 0 {
		t.heads, t.kvHeads, t.n, t.dim = heads, kvHeads, n, dim
		t.layered = t.layered || len(qShape) == 4
	}
	if heads != t.heads || kvHeads != t.kvHeads || n != t.n || dim != t.dim {
		return fmt.Errorf("%s %v, %s %v: another shape than the layers before, which have %d heads, %d kv heads, n=%d and d=%d",
			q, qShape, k, kShape, t.heads, t.kvHeads, t.n, t.dim)
	}
	for l := range layers {
		cut := func(a *npy.Array) []float32 {
			size := len(a.Data) / layers
			return a.Data[l*size : (l+1)*size]
		}
		t.layers = append(t.layers, engine.QKV{Q: cut(arrays[0]), K: cut(arrays[1]), V: cut(arrays[2])})
	}
	return nil
}

// shapeOf is the dimensions of [heads, n, d] or [layers, heads, n, d].
func shapeOf(a *npy.Array) (layers, heads, n, dim int) {
	s := a.Shape
	layers = 1
	if len(s) == 4 {
		layers, s = s[0], s[1:]
	}
	return layers, s[0], s[1], s[2]
}

// indexFile is the file of --indices, written as the rows come.
type indexFile struct {
	file *userfile.Out
	out  *bufio.Writer
	some bool
	err  error
}

// index is what a row and head read.
type index struct {
	Layer   int             `json:"layer"`
	Head    int             `json:"head"`
	Row     int             `json:"row"`
	Keys    []int32         `json:"keys"` // never null
	Weights console.Numbers `json:"weights,omitempty"`
	Mixture bool            `json:"mixture,omitempty"`
	Frozen  bool            `json:"frozen,omitempty"` // the layer does not update the row, which reads nothing
}

// newIndexFile begins the file; nil where there is none to write.
func newIndexFile(path, attn, phase string) (*indexFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := userfile.Create("--indices", path)
	if err != nil {
		return nil, err
	}
	x := &indexFile{file: f, out: bufio.NewWriter(f)}
	name, err := json.Marshal(attn)
	fmt.Fprintf(x.out, `{"attn": %s, "phase": "%s", "rows": [`, name, phase) // errors stick until Flush
	return x, err
}

// add writes the rows of a selection from position first on, those of decode
// steps or those of a prefill.
func (x *indexFile) add(s engine.Selection, first int, decode bool) {
	if s.Decode != decode {
		return
	}
	for row, p := range s.Pos {
		if p < first {
			continue
		}
		for h := range s.Heads {
			keys, weights := s.Keys(row, h)
			one := index{Layer: s.Layer, Head: h, Row: p, Keys: append([]int32{}, keys...), Mixture: s.Plan().Mixture}
			for _, w := range weights {
				if w != 1 {
					one.Weights = weights
				}
			}
			x.write(one)
		}
	}
}

// addFrozen writes the rows from to to-1, which a layer does not update, for heads heads.
func (x *indexFile) addFrozen(layer, from, to, heads int) {
	for row := from; row < to; row++ {
		for h := range heads {
			x.write(index{Layer: layer, Head: h, Row: row, Keys: []int32{}, Frozen: true})
		}
	}
}

// write writes one object.
func (x *indexFile) write(one index) {
	if x.some {
		x.out.WriteByte(',')
	}
	x.some = true
	x.out.WriteByte('\n')
	text, err := json.Marshal(one)
	if x.err == nil {
		x.err = err
	}
	x.out.Write(text)
}

// finish ends the file; one whose rows ended with err is not kept.
func (x *indexFile) finish(err error) error {
	x.out.WriteString("\n]}\n")
	return x.file.Finish(cmp.Or(err, x.err, x.out.Flush()))
}
