package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/weights"
)

// openModel is an engine and the memory that it may use.
type openModel struct {
	*engine.Engine
	available uint64 // bytes, before the weights were read; 0 is unknown
	log       func(format string, args ...any)
	warn      func(format string, args ...any)
	warned    bool // of a context longer than the training
}

// open loads the model that the flags name.
func (m *modelFlags) open(cmd *cobra.Command) (*openModel, error) {
	log := logger(cmd)
	m.warnThreads(cmd)
	start := time.Now()
	if info, err := os.Stat(m.path); err == nil { // what is wrong with it is said below
		if err := checkAddresses(m.path, info.Size()); err != nil {
			return nil, err
		}
	}
	file, err := weights.Open(m.path)
	if err != nil {
		return nil, fileError("-m", m.path, ggufFile, err)
	}
	log("%s: %s, %d tensors, %s", file.Path(), plural(len(file.Parts()), "file"), len(file.Tensors()), sizeText(file.Size()))
	where, err := parseDevice(m.device)
	if err != nil {
		file.Close()
		return nil, err
	}
	dev, err := where.openFor(cmd, m.threads, file.Size())
	if err != nil {
		file.Close()
		return nil, err
	}
	o := &openModel{log: log, available: availableOf(dev)}
	log("%s, %s of memory available", dev.Info().Name, sizeText(int64(o.available)))
	o.warn = warner(cmd)
	if err := o.checkWeights(file); err != nil {
		dev.Close()
		file.Close()
		return nil, err
	}
	wait := newBar(cmd.ErrOrStderr(), log, "loading "+filepath.Base(m.path), 0, "")
	defer wait.stop()
	if o.Engine, err = engine.Load(file, dev); err != nil {
		return nil, err
	}
	log("loaded in %s: %s", timeText(time.Since(start)), shapeText(o.Model.Config))
	if products := dev.Info().Products; products != "" { // behind the loading, which prepares what it asks for
		log("products of many rows by %s", products)
	}
	return o, nil
}

// warnThreads says that there are more threads than cores.
func (m *modelFlags) warnThreads(cmd *cobra.Command) {
	if cores := runtime.NumCPU(); m.threads > cores {
		warner(cmd)("--threads %d, but this machine has %s: more threads than cores are slower", m.threads, plural(cores, "core"))
	}
}

// checkWeights refuses a file that has no weights or more than memory can hold.
func (o *openModel) checkWeights(f *weights.File) error {
	if len(f.Tensors()) == 0 {
		return fmt.Errorf("%s has a vocabulary but no weights: gollm tokenize and gollm inspect work with it, and a model to run needs a file with weights", f.Path())
	}
	if need := uint64(f.Size()); o.available > 0 && need > o.available {
		return fmt.Errorf("%s needs %s for its weights, but %s of memory are available; use a smaller model or quantization, or end other programs",
			f.Path(), sizeText(f.Size()), sizeText(int64(o.available)))
	}
	return nil
}

// runner allocates a cache of context tokens for one sequence. seed is that of
// attention systems that draw at random. With more systems for decode steps there
// is room for a second sequence, a prompt that is kept for them.
func (o *openModel) runner(c *cacheFlags, context int, seed uint64, also ...*sparse.Spec) (*engine.Runner, error) {
	slots := 1
	if len(also) > 0 {
		slots = 2
	}
	return o.runners(c, context, slots, seed, also...)
}

// runners is runner for some sequences.
func (o *openModel) runners(c *cacheFlags, context, slots int, seed uint64, also ...*sparse.Spec) (*engine.Runner, error) {
	attn, err := c.spec()
	if err != nil {
		return nil, err
	}
	kv, err := c.dtype()
	if err != nil {
		return nil, err
	}
	if err := o.checkCache(context, slots, kv); err != nil {
		return nil, err
	}
	r, err := o.NewRunner(engine.Config{Context: context, Slots: slots, KV: kv, Attn: attn, Also: also, Seed: seed, RepeatLastN: c.last})
	if err != nil {
		return nil, err
	}
	if c.audit.on() {
		if err := c.audit.watch(r); err != nil {
			return nil, err
		}
	}
	o.warnContext(context)
	o.log("context of %d tokens, KV cache %s at most, %s", context, sizeText(int64(slots)*o.cacheSize(context, kv)), r.Attn())
	return r, nil
}

// warnContext says once that a context goes beyond what the model was trained for.
func (o *openModel) warnContext(context int) {
	if trained := o.Model.Context; context > trained && !o.warned {
		o.warned = true
		o.warn("a context of %d tokens, but %s was trained for %d: expect poor results beyond that",
			context, filepath.Base(o.File.Path()), trained)
	}
}

// cacheSize is the bytes of the KV cache of one sequence.
func (o *openModel) cacheSize(context int, kv device.DType) int64 {
	return int64(roundUp(context, device.PageLen)) * int64(o.Model.KVBytes(kv.BlockSize()))
}

// checkCache refuses a cache that does not fit beside the weights.
func (o *openModel) checkCache(context, slots int, kv device.DType) error {
	need := int64(slots) * o.cacheSize(context, kv)
	if err := checkAddresses(fmt.Sprintf("a KV cache of %d tokens", context), need); err != nil {
		return err
	}
	if o.available == 0 || uint64(need+o.File.Size()) <= o.available {
		return nil
	}
	return fmt.Errorf("%s needs %s for its weights and %s for the KV cache of %d tokens, but %s of memory are available; use a smaller --ctx or a smaller quantization",
		o.File.Path(), sizeText(o.File.Size()), sizeText(need), context, sizeText(int64(o.available)))
}

// shapeText is the shape of a model on one line.
func shapeText(c model.Config) string {
	return fmt.Sprintf("%d layers of width %d, %d heads, %d kv heads, vocabulary %d, trained for %d tokens",
		c.Layers, c.Dim, c.Heads, c.KVHeads, c.Vocab, c.Context)
}

// roundUp is the smallest multiple of unit that is at least n.
func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
