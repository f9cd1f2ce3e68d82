package device

import (
	"fmt"
	"slices"
	"strings"
)

// Config is the options of [Open].
type Config struct {
	Threads int // CPU threads; 0 is one for each core
	Index   int // the ordinal of the device, as CUDA counts them
}

var (
	names   []string // in the order of registration
	openers = map[string]func(Config) (Device, error){}
)

// Register makes a backend available to [Open]. Backends call it from init, because they are
// behind build tags.
func Register(name string, open func(Config) (Device, error)) {
	if _, dup := openers[name]; dup {
		panic("device: Register: " + name + " twice")
	}
	names = append(names, name)
	openers[name] = open
}

// Names lists the backends in this binary.
func Names() []string { return slices.Sorted(slices.Values(names)) }

// Open opens the backend called name.
func Open(name string, c Config) (Device, error) {
	open, ok := openers[name]
	if !ok {
		return nil, fmt.Errorf("device: %q is not in this build, which has: %s", name, strings.Join(Names(), ", "))
	}
	return open(c)
}
