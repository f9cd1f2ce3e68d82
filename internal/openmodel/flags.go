package openmodel

import (
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/cpu" // registers the backend
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/sparse"
)

// Flags say which model runs on what.
type Flags struct {
	Path    string // of the GGUF file
	Device  string // as ParseDevice reads it
	Threads int    // of the CPU; 0 is one for each core
	Rope    RopeFlags
}

// RegisterDevice registers what runs the model; it follows the flags that a
// newcomer looks for.
func (m *Flags) RegisterDevice(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.Device, "device", autoDevice, "where to run: "+strings.Join(deviceNames(), ", ")+"; cuda:1 is the second GPU")
	f.IntVarP(&m.Threads, "threads", "t", 0, "CPU threads; 0, the default, is one for each core")
	usage.Complete(cmd, "device", deviceNames)
}

// RegisterRun is RegisterDevice with the flags that change the model.
func (m *Flags) RegisterRun(cmd *cobra.Command) {
	m.RegisterDevice(cmd)
	m.Rope.Register(cmd)
}

// RegisterPath registers -m alone, for commands that do not run the model.
func (m *Flags) RegisterPath(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&m.Path, "model", "m", "", "the model, a GGUF file (required)")
	_ = cmd.MarkFlagFilename("model", "gguf") // fails only for a flag that does not exist
}

// Check reports what is wrong with the flags.
func (m *Flags) Check() error {
	if err := m.CheckPath(); err != nil {
		return err
	}
	if err := m.Rope.Check(); err != nil {
		return err
	}
	return m.CheckDevice()
}

// CheckPath reports what is wrong with the flag of RegisterPath.
func (m *Flags) CheckPath() error {
	if m.Path == "" {
		return usage.Errorf("no model: name a GGUF file with -m FILE, for example -m testdata/demo.gguf")
	}
	return nil
}

// CheckDevice reports what is wrong with the flags of RegisterDevice.
func (m *Flags) CheckDevice() error {
	if _, err := ParseDevice(m.Device); err != nil {
		return err
	}
	if m.Threads < 0 || m.Threads > cpu.MaxThreads {
		return usage.Errorf("--threads %d, want 1 to %d, or 0 for one for each core", m.Threads, cpu.MaxThreads)
	}
	return nil
}

// MaxContext bounds --ctx, in tokens: more than any memory holds, and so few that
// the size of their cache is a number.
const MaxContext = min(1<<40, math.MaxInt)

// CacheFlags say how large the KV cache is and what attention reads of it.
type CacheFlags struct {
	Context     int     // tokens; 0 is what the command says
	KV          string  // element type, as DType reads it
	Attn        string  // attention method, as Spec reads it
	Audit       Auditor // of the commands that print an audit; nil: none
	RepeatLastN int     // tokens that penalties look at, of --repeat-last-n
}

// Auditor is an audit that a command may have been asked for.
type Auditor interface {
	Check() error                 // reports what is wrong with its flags
	Watch(r *engine.Runner) error // begins it for a new runner, where it was asked for
}

// Register registers the flags; context is the help of --ctx.
func (c *CacheFlags) Register(cmd *cobra.Command, context string) {
	c.registerSize(cmd, context)
	cmd.Flags().StringVar(&c.Attn, "attn", "dense", AttnUsage)
	CompleteAttn(cmd)
}

// AttnUsage describes --attn.
const AttnUsage = "attention method, or @FILE.yaml; gollm attn lists them"

// registerSize registers all but --attn.
func (c *CacheFlags) registerSize(cmd *cobra.Command, context string) {
	cmd.Flags().IntVar(&c.Context, "ctx", 0, context)
	c.RegisterType(cmd)
}

// RegisterType registers --kv alone.
func (c *CacheFlags) RegisterType(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.KV, "kv", "f16", "element type of the KV cache: f16 or f32")
	usage.Complete(cmd, "kv", func() []string { return []string{"f16", "f32"} })
}

// Spec reads --attn.
func (c *CacheFlags) Spec() (*sparse.Spec, error) {
	s, err := ReadSpec(c.Attn)
	if err != nil {
		return nil, usage.Errorf("--attn: %v", err)
	}
	return s, nil
}

// DType reads --kv.
func (c *CacheFlags) DType() (device.DType, error) {
	switch strings.ToLower(c.KV) {
	case "f16":
		return device.F16, nil
	case "f32":
		return device.F32, nil
	}
	return 0, usage.Errorf("--kv %s, want f16 or f32", c.KV)
}

// Check reports what is wrong with the flags.
func (c *CacheFlags) Check() error {
	if _, err := c.Spec(); err != nil {
		return err
	}
	if c.Context < 0 || c.Context > MaxContext {
		return usage.Errorf("--ctx %d, want a number of tokens from 1 to %d", c.Context, MaxContext)
	}
	if c.Audit != nil {
		if err := c.Audit.Check(); err != nil {
			return err
		}
	}
	_, err := c.DType()
	return err
}

// Files are the files that the flags name.
func (m *Flags) Files() []userfile.Named { return []userfile.Named{{Flag: "-m", Path: m.Path}} }

// Files is the file of @FILE.yaml.
func (c *CacheFlags) Files() []userfile.Named {
	if path, file := strings.CutPrefix(c.Attn, "@"); file {
		return []userfile.Named{{Flag: "--attn", Path: path}}
	}
	return nil
}
