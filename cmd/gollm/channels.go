package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/npy"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

const channelsLong = `Rank the channels of a model's heads for --attn doublesparsity.

A channel is one of the numbers of a head. They are ranked, for each layer and
query head, by how much they add to scores: the mean of |q·k| of each token's own
query and key over a text, both after RoPE. A thousand tokens of ordinary text
are enough.

The result is a .npy file, float32 [layers, heads, channels], best first, numbered
as in Hugging Face models.`

const channelsExample = `  gollm channels -m model.gguf -f text.txt -o channels.npy
  gollm generate -m model.gguf -f long.txt --attn 'doublesparsity(file=channels.npy)'`

// channelsFlags is what channels can be told.
type channelsFlags struct {
	model  openmodel.Flags
	text   openmodel.TextFlags
	tokens openmodel.TokenFlags
	out    string
	limit  int
}

func newChannels() *cobra.Command {
	var c channelsFlags
	cmd := &cobra.Command{
		Use:     "channels -m FILE -f TEXTFILE -o OUT.npy",
		Short:   "Rank the channels of a model for doublesparsity",
		Long:    channelsLong,
		Example: channelsExample,
		GroupID: groupLook,
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.model.RegisterPath(cmd)
	c.text.Register(cmd, "the text")
	cmd.Flags().StringVarP(&c.out, "out", "o", "", "where the ranking goes, .npy (required)")
	_ = cmd.MarkFlagFilename("out", "npy") // fails only for a flag that does not exist
	cmd.Flags().IntVar(&c.limit, "limit", 1024, "tokens of the text that are read")
	c.model.RegisterRun(cmd)
	return cmd
}

// check reports what is wrong with the command line.
func (c *channelsFlags) check(cmd *cobra.Command) error {
	if err := c.model.Check(); err != nil {
		return err
	}
	if c.out == "" {
		return usage.Errorf("no place for the ranking: name a file with -o FILE.npy")
	}
	if c.limit < 1 || c.limit > openmodel.MaxContext {
		return usage.Errorf("--limit %d, want 1 or more tokens", c.limit)
	}
	if err := userfile.CheckOutputs(append(c.model.Files(), userfile.Named{Flag: "-f", Path: c.text.File}), userfile.Named{Flag: "-o", Path: c.out}); err != nil {
		return err
	}
	return c.text.Check(cmd)
}

func (c *channelsFlags) run(cmd *cobra.Command) error {
	if err := c.check(cmd); err != nil {
		return err
	}
	text, err := c.text.Read(cmd)
	if err != nil {
		return err
	}
	m, err := c.model.Open(cmd)
	if err != nil {
		return err
	}
	defer m.Close()
	c.tokens.NoSpecial = true // a text is data: what looks like a special token in it is none
	ids := c.tokens.Encode(m.Tokenizer, text)
	ids = ids[:min(len(ids), c.limit)]
	if len(ids) == 0 {
		return fmt.Errorf("the text has no tokens; there is nothing to rank channels by")
	}
	if err := m.CheckCache(len(ids), 1, device.F32); err != nil {
		return err
	}
	r, err := m.NewRunner(engine.Config{Context: len(ids), KV: device.F32})
	if err != nil {
		return err
	}
	seq, err := r.Open()
	if err != nil {
		return err
	}
	seen := r.Channels()
	ctx, release := console.Interruptible(cmd.Context())
	defer release()
	wait := console.NewBar(cmd.ErrOrStderr(), m.Log, "reading", 0, "")
	err = seq.Prefill(ctx, ids, engine.PrefillOptions{})
	wait.Stop()
	if err != nil {
		if ctx.Err() != nil {
			return console.ErrInterrupted
		}
		return err
	}
	ranks, err := seen.Rank()
	if err != nil {
		return err
	}
	return c.write(cmd, m, npy.Array{Shape: []int{m.Model.Layers, m.Model.Heads, m.Model.HeadDim}, Data: ranks}, len(ids))
}

// write makes the file and says what is in it.
func (c *channelsFlags) write(cmd *cobra.Command, m *openmodel.Model, a npy.Array, tokens int) error {
	f, err := userfile.Create("-o", c.out)
	if err != nil {
		return err
	}
	if err := f.Finish(npy.Write(f, &a)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: channels of %d layers and %d heads, best first, by %s of text\n",
		console.OneLine(c.out), m.Model.Layers, m.Model.Heads, console.Plural(tokens, "token"))
	return err
}
