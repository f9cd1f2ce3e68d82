package engine

import (
	"errors"
	"fmt"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/weights"
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
	e := &Engine{File: f}
	if err := e.load(name, c); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// load fills in what stands on the open file.
func (e *Engine) load(name string, c device.Config) (err error) {
	vocab, err := tokenizer.FromMetadata(e.File)
	if err == nil {
		e.Tokenizer, err = tokenizer.New(vocab)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.File.Path(), err)
	}
	if e.Device, err = device.Open(name, c); err != nil {
		return err
	}
	e.Model, err = model.Load(e.File, e.Device)
	return err
}

// Close frees the device and unmaps the file.
func (e *Engine) Close() error {
	var err error
	if e.Device != nil {
		err = e.Device.Close()
	}
	return errors.Join(err, e.File.Close())
}
