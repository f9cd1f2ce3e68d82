package openmodel

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/weights"
)

// Model is an engine and the memory that it may use.
type Model struct {
	*engine.Engine
	available uint64                           // bytes, before the weights were read; 0 is unknown
	Log       func(format string, args ...any) // what -v says
	Warn      func(format string, args ...any) // a line on stderr
	Warned    bool                             // of a context longer than the training
}

// Open loads the model that the flags name.
func (m *Flags) Open(cmd *cobra.Command) (*Model, error) {
	log := console.Logger(cmd)
	m.WarnThreads(cmd)
	start := time.Now()
	if info, err := os.Stat(m.Path); err == nil { // what is wrong with it is said below
		if err := checkAddresses(m.Path, info.Size()); err != nil {
			return nil, err
		}
	}
	file, err := weights.Open(m.Path)
	if err != nil {
		return nil, userfile.OpenError("-m", m.Path, userfile.GGUF, err)
	}
	log("%s: %s, %d tensors, %s", file.Path(), console.Plural(len(file.Parts()), "file"), len(file.Tensors()), console.SizeText(file.Size()))
	where, err := ParseDevice(m.Device)
	if err != nil {
		file.Close()
		return nil, err
	}
	dev, err := where.Open(cmd, m.Threads, file.Size())
	if err != nil {
		file.Close()
		return nil, err
	}
	o := &Model{Log: log, available: dev.Info().Free}
	log("%s, %s of memory available", dev.Info().Name, console.SizeText(int64(o.available)))
	o.Warn = console.Warner(cmd)
	if err := o.checkWeights(file); err != nil {
		dev.Close()
		file.Close()
		return nil, err
	}
	wait := console.NewBar(cmd.ErrOrStderr(), log, "loading "+filepath.Base(m.Path), 0, "")
	defer wait.Stop()
	if o.Engine, err = engine.LoadRope(file, dev, m.Rope.RopeOptions); err != nil {
		return nil, err
	}
	log("loaded in %s: %s", console.TimeText(time.Since(start)), shapeText(o.Model.Config))
	if products := dev.Info().Products; products != "" { // behind the loading, which prepares what it asks for
		log("products of many rows by %s", products)
	}
	return o, nil
}

// WarnThreads says that there are more threads than cores.
func (m *Flags) WarnThreads(cmd *cobra.Command) {
	if cores := runtime.NumCPU(); m.Threads > cores {
		console.Warner(cmd)("--threads %d, but this machine has %s: more threads than cores are slower", m.Threads, console.Plural(cores, "core"))
	}
}

// checkWeights refuses a file that has no weights or more than memory can hold.
func (o *Model) checkWeights(f *weights.File) error {
	if len(f.Tensors()) == 0 {
		return fmt.Errorf("%s has a vocabulary but no weights: gollm tokenize and gollm inspect work with it, and a model to run needs a file with weights", f.Path())
	}
	if need := uint64(f.Size()); o.available > 0 && need > o.available {
		return fmt.Errorf("%s needs %s for its weights, but %s of memory are available; use a smaller model or quantization, or end other programs",
			f.Path(), console.SizeText(f.Size()), console.SizeText(int64(o.available)))
	}
	return nil
}

// Runner allocates a cache of context tokens for one sequence. seed is that of
// attention methods that draw at random. With more methods for decode steps there
// is room for a second sequence, a prompt that is kept for them.
func (o *Model) Runner(c *CacheFlags, context int, seed uint64, also ...*sparse.Spec) (*engine.Runner, error) {
	slots := 1
	if len(also) > 0 {
		slots = 2
	}
	return o.Runners(c, context, slots, seed, also...)
}

// Runners is Runner for some sequences.
func (o *Model) Runners(c *CacheFlags, context, slots int, seed uint64, also ...*sparse.Spec) (*engine.Runner, error) {
	attn, err := c.Spec()
	if err != nil {
		return nil, err
	}
	kv, err := c.DType()
	if err != nil {
		return nil, err
	}
	if err := o.CheckCache(context, slots, kv); err != nil {
		return nil, err
	}
	r, err := o.NewRunner(engine.Config{Context: context, Slots: slots, KV: kv, Attn: attn, Also: also, Seed: seed, RepeatLastN: c.RepeatLastN})
	if err != nil {
		return nil, err
	}
	if c.Audit != nil {
		if err := c.Audit.Watch(r); err != nil {
			return nil, err
		}
	}
	o.WarnContext(context)
	o.Log("context of %d tokens, KV cache %s at most, %s", context, console.SizeText(int64(slots)*o.cacheSize(context, kv)), r.Attn())
	return r, nil
}

// WarnContext says once that a context goes beyond what the model was trained for.
func (o *Model) WarnContext(context int) {
	if trained := o.Model.Context; context > trained && !o.Warned {
		o.Warned = true
		o.Warn("a context of %d tokens, but %s was trained for %d: expect poor results beyond that",
			context, filepath.Base(o.File.Path()), trained)
	}
}

// cacheSize is the bytes of the KV cache of one sequence.
func (o *Model) cacheSize(context int, kv device.DType) int64 {
	return int64(RoundUp(context, device.PageLen)) * int64(o.Model.KVBytes(kv.BlockSize()))
}

// CheckCache refuses a cache that does not fit beside the weights.
func (o *Model) CheckCache(context, slots int, kv device.DType) error {
	need := int64(slots) * o.cacheSize(context, kv)
	if err := checkAddresses(fmt.Sprintf("a KV cache of %d tokens", context), need); err != nil {
		return err
	}
	if o.available == 0 || uint64(need+o.File.Size()) <= o.available {
		return nil
	}
	return fmt.Errorf("%s needs %s for its weights and %s for the KV cache of %d tokens, but %s of memory are available; use a smaller --ctx or a smaller quantization",
		o.File.Path(), console.SizeText(o.File.Size()), console.SizeText(need), context, console.SizeText(int64(o.available)))
}

// shapeText is the shape of a model on one line.
func shapeText(c model.Config) string {
	return fmt.Sprintf("%d layers of width %d, %d heads, %d kv heads, vocabulary %d, trained for %d tokens",
		c.Layers, c.Dim, c.Heads, c.KVHeads, c.Vocab, c.Context)
}

// RoundUp is the smallest multiple of unit that is at least n.
func RoundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
