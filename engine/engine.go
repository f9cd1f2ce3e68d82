package engine

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/weights"
	"golang.org/x/sync/errgroup"
)

// Engine is a model and its tokenizer on a device.
type Engine struct {
	File      *weights.File
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Device    device.Device
}

// Open loads a GGUF model on the device called name, for example "cpu".
func Open(path, name string, c device.Config) (*Engine, error) {
	f, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	dev, err := device.Open(name, c)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return Load(f, dev)
}

// Load makes an engine of an open file and an open device, which it closes with
// itself, or at once when it fails.
func Load(f *weights.File, dev device.Device) (*Engine, error) {
	return LoadRope(f, dev, model.RopeOptions{})
}

// LoadRope is Load with another rotary embedding than the file's.
func LoadRope(f *weights.File, dev device.Device, o model.RopeOptions) (*Engine, error) {
	e := &Engine{File: f, Device: dev}
	if err := e.load(o); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// load builds the tokenizer, which takes a tenth of a second for a large
// vocabulary, while the weights are put on it.
func (e *Engine) load(o model.RopeOptions) error {
	var g errgroup.Group
	guarded := func(f func() error) { g.Go(func() error { return weights.Guarded(f) }) }
	guarded(func() error {
		vocab, err := tokenizer.FromMetadata(e.File)
		if err == nil {
			e.Tokenizer, err = tokenizer.New(vocab)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.File.Path(), err)
		}
		return nil
	})
	guarded(func() (err error) {
		e.Model, err = model.LoadRope(e.File, e.Device, o)
		return err
	})
	return g.Wait()
}

// Close frees the device and unmaps the file.
func (e *Engine) Close() error { return errors.Join(e.Device.Close(), e.File.Close()) }
