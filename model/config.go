package model

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/internal/quote"
	"github.com/gollm/gollm/weights"
)

// Config is the hyper-parameters of a model.
type Config struct {
	Name    string // general.name, may be empty
	Arch    string // general.architecture
	Layers  int
	Dim     int // width of the residual stream
	Heads   int // query heads
	KVHeads int
	HeadDim int
	FF      int // width of the feed-forward layer
	Vocab   int
	Context int     // positions that the model was trained for
	Window  int     // sliding window in positions, the row's own included; 0 is none
	Eps     float32 // of RMSNorm
	Rope    RopeConfig

	Bias      bool // q, k and v have one
	HeadNorms bool // each head of q and of k is normalized before it is rotated
}

// The limits of fields: far above any Llama, low enough that no product of two
// fields overflows or allocates absurd memory.
const (
	maxLayers = 1 << 12
	maxWidth  = 1 << 20
	maxVocab  = 1 << 24
	maxTokens = 1 << 27
	maxFloat  = 1e30
)

// reader reads metadata of one architecture and keeps the first error.
type reader struct {
	file *weights.File
	arch string
	err  error
}

// key is the full name of an architecture's key.
func (r *reader) key(name string) string { return r.arch + "." + name }

// uint reads a required whole number in [1, limit].
func (r *reader) uint(name string, limit int) int {
	n, err := r.file.Uint(r.key(name))
	return r.inRange(name, n, 1, limit, err)
}

// uintOr reads a whole number in [lo, limit], def when the key is absent.
func (r *reader) uintOr(name string, def, lo, limit int) int {
	n, err := r.file.UintOr(r.key(name), def)
	return r.inRange(name, n, lo, limit, err)
}

func (r *reader) inRange(name string, n, lo, hi int, err error) int {
	if err == nil && (n < lo || n > hi) {
		err = fmt.Errorf("%s: key %s is %d, want %d to %d", r.file.Path(), r.key(name), n, lo, hi)
	}
	r.keep(err)
	return n
}

// floatOr reads a number above zero, and not absurdly near it, def when the key is absent.
func (r *reader) floatOr(name string, def float64) float64 {
	x, err := r.file.FloatOr(r.key(name), def)
	if err == nil && !(x > 1/maxFloat && x < maxFloat) {
		err = fmt.Errorf("%s: key %s is %v, want a number above 0 (%g to %g)", r.file.Path(), r.key(name), x, 1/maxFloat, maxFloat)
	}
	r.keep(err)
	return x
}

func (r *reader) stringOr(name, def string) string {
	s, err := r.file.StringOr(r.key(name), def)
	r.keep(err)
	return s
}

func (r *reader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// ReadConfig reads the hyper-parameters of a GGUF file. An architecture or a
// variant that this package does not compute exactly is an error.
func ReadConfig(f *weights.File, o RopeOptions) (Config, error) {
	arch, err := f.Architecture()
	if err != nil {
		return Config{}, fmt.Errorf("model: %w", err)
	}
	family, ok := findFamily(arch)
	if !ok {
		return Config{}, fmt.Errorf("model: %s: architecture %s is not supported; gollm runs %s", f.Path(), quote.Short(arch), supported())
	}
	r := &reader{file: f, arch: arch}
	c := r.config()
	c.Bias, c.HeadNorms, c.Rope.Halves = family.bias, family.headNorms, family.halves
	r.keep(c.check(r))
	if err := o.apply(&c); err != nil {
		r.keep(fmt.Errorf("%s: %w", f.Path(), err))
	}
	if r.err != nil {
		return Config{}, fmt.Errorf("model: %w", r.err)
	}
	return c, nil
}

// config reads every field.
func (r *reader) config() Config {
	c := Config{
		Arch:    r.arch,
		Layers:  r.uint("block_count", maxLayers),
		Dim:     r.uint("embedding_length", maxWidth),
		Heads:   r.uint("attention.head_count", maxWidth),
		FF:      r.uint("feed_forward_length", maxWidth),
		Context: r.uint("context_length", maxTokens),
		Window:  r.uintOr("attention.sliding_window", 0, 0, maxTokens),
		Eps:     float32(r.floatOr("attention.layer_norm_rms_epsilon", 1e-5)),
	}
	name, err := r.file.StringOr("general.name", "")
	r.keep(err)
	c.Name = name
	c.KVHeads = r.uintOr("attention.head_count_kv", c.Heads, 1, maxWidth)
	c.HeadDim = r.uintOr("attention.key_length", c.Dim/max(c.Heads, 1), 1, maxWidth)
	if v := r.uintOr("attention.value_length", c.HeadDim, 1, maxWidth); v != c.HeadDim {
		r.keep(fmt.Errorf("%s: values of %d and keys of %d per head: only equal widths are supported", r.file.Path(), v, c.HeadDim))
	}
	if n := r.uintOr("expert_count", 0, 0, maxWidth); n > 0 {
		r.keep(fmt.Errorf("%s: a mixture of %d experts is not supported; gollm runs dense models of %s", r.file.Path(), n, supported()))
	}
	if r.err == nil {
		c.Rope = r.rope(c)
	}
	return c
}

// check verifies the relations between fields.
func (c Config) check(r *reader) error {
	if r.err != nil {
		return nil
	}
	var errs []error
	if c.Heads%c.KVHeads != 0 {
		errs = append(errs, fmt.Errorf("%s: %d attention heads are not a multiple of %d kv heads", r.file.Path(), c.Heads, c.KVHeads))
	}
	if n := c.Rope.Dims; n%2 != 0 || n > c.HeadDim {
		errs = append(errs, fmt.Errorf("%s: rope over %d dimensions, want an even number up to the head's %d", r.file.Path(), n, c.HeadDim))
	}
	return errors.Join(errs...)
}

// KVBytes is the size of the keys and values of one position in all layers, at
// elemSize bytes an element.
func (c Config) KVBytes(elemSize int) int { return 2 * c.Layers * c.KVHeads * c.HeadDim * elemSize }
