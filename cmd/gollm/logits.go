package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

const logitsLong = `Write the logits of every position of a list of tokens, to compare engines.

The output is float32, little endian, [position][vocabulary], without a header:
4 bytes for each token of the vocabulary for each position. The tokens are taken
as they are: no beginning-of-text token is added.

The tokens go through the model in one prefill; --step runs them one by one as
in generation, which gives the same logits but for rounding. --last writes those
of the last position alone.`

const logitsExample = `  gollm tokenize -m model.gguf -p "Hello, world" > ids.json
  gollm logits -m model.gguf --tokens ids.json -o logits.f32`

// logitsFlags is what logits can be told.
type logitsFlags struct {
	model  openmodel.Flags
	cache  openmodel.CacheFlags
	tokens string
	out    string
	step   bool
	last   bool
}

func newLogits() *cobra.Command {
	var l logitsFlags
	cmd := &cobra.Command{
		Use:     "logits -m FILE --tokens IDS.json -o OUT.f32",
		Short:   "Write the logits of every position",
		Long:    logitsLong,
		Example: logitsExample,
		GroupID: groupLook,
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return l.run(cmd) },
	}
	l.model.RegisterPath(cmd)
	f := cmd.Flags()
	f.StringVar(&l.tokens, "tokens", "", "file with token ids as a JSON array; - is stdin (required)")
	f.StringVarP(&l.out, "out", "o", "", "file to write; - is stdout (required)")
	f.BoolVar(&l.step, "step", false, "run token by token instead of in one prefill")
	f.BoolVar(&l.last, "last", false, "write the logits of the last position only")
	l.cache.Register(cmd, "tokens of context; 0, the default, is as many as are given")
	l.model.RegisterRun(cmd)
	_ = cmd.MarkFlagFilename("tokens", "json") // fails only for a flag that does not exist
	return cmd
}

// check reports what is wrong with the command line.
func (l *logitsFlags) check(cmd *cobra.Command) error {
	if err := l.model.Check(); err != nil {
		return err
	}
	if l.tokens == "" {
		return usage.Errorf("no tokens: name a file with --tokens IDS.json; gollm tokenize makes one")
	}
	if l.out == "" {
		return usage.Errorf("no output: name a file with -o FILE")
	}
	if l.out == "-" && console.IsTerminal(cmd.OutOrStdout()) {
		return usage.Errorf("-o -: the logits are binary and stdout is a terminal; name a file, or pipe them on")
	}
	if err := userfile.CheckOutputs(append(l.model.Files(), userfile.Named{Flag: "--tokens", Path: l.tokens}), userfile.Named{Flag: "-o", Path: l.out}); err != nil {
		return err
	}
	return l.cache.Check()
}

func (l *logitsFlags) run(cmd *cobra.Command) error {
	if err := l.check(cmd); err != nil {
		return err
	}
	raw, err := userfile.Read(cmd, "--tokens", l.tokens, "token ids as a JSON array")
	if err != nil {
		return err
	}
	m, err := l.model.Open(cmd)
	if err != nil {
		return err
	}
	defer m.Close()
	ids, err := parseIDs(raw, m.Model.Vocab)
	if err != nil {
		return err
	}
	r, err := m.Runner(&l.cache, max(l.cache.Context, len(ids), 1), 0)
	if err != nil {
		return err
	}
	seq, err := r.Open()
	if err != nil {
		return err
	}
	var broken brokenCount
	err = l.write(cmd, func(write func([]float32) error) error {
		row := func(logits []float32) error {
			broken.add(logits)
			return write(logits)
		}
		ctx, release := console.Interruptible(cmd.Context())
		defer release()
		if l.step {
			return stepLogits(ctx, r, seq, ids, m.Model.Vocab, l.ofLast(len(ids), row))
		}
		if l.last {
			return lastLogits(ctx, seq, ids, m.Model.Vocab, row)
		}
		return seq.Prefill(ctx, ids, engine.PrefillOptions{
			Logits: func(_ int, logits []float32) error { return row(logits) },
		})
	})
	if err == nil {
		cmd.PrintErr(broken.text("logits", "the model file is damaged or not for this architecture"))
	}
	return err
}

// write makes the output file of the rows that run computes.
func (l *logitsFlags) write(cmd *cobra.Command, run func(row func([]float32) error) error) error {
	if l.out == "-" {
		return writeRows(console.DataOut(cmd), run)
	}
	f, err := userfile.Create("-o", l.out)
	if err != nil {
		return err
	}
	return f.Finish(writeRows(f, run))
}

// writeRows writes each row as float32 little endian.
func writeRows(out io.Writer, run func(row func([]float32) error) error) error {
	w := bufio.NewWriterSize(out, 1<<20)
	var b []byte
	err := run(func(logits []float32) error {
		b = b[:0]
		for _, x := range logits {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		_, err := w.Write(b)
		return err
	})
	if err != nil {
		return err
	}
	return w.Flush()
}

// stepLogits runs ids token by token and calls row after each.
func stepLogits(ctx context.Context, r *engine.Runner, seq *engine.Sequence, ids []int32, vocab int, row func([]float32) error) error {
	logits := make([]float32, vocab)
	for i, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := seq.Push(id)
		if err == nil {
			err = r.Step(seq)
		}
		if err == nil {
			err = seq.Logits(logits)
		}
		if err == nil {
			err = row(logits)
		}
		if err != nil {
			return fmt.Errorf("token %d: %w", i+1, err)
		}
	}
	return nil
}

// ofLast calls row with the last of n rows only, where --last asks for that.
func (l *logitsFlags) ofLast(n int, row func([]float32) error) func([]float32) error {
	if !l.last {
		return row
	}
	return func(logits []float32) error {
		if n--; n > 0 {
			return nil
		}
		return row(logits)
	}
}

// lastLogits runs ids in one prefill and calls row with the logits after them.
func lastLogits(ctx context.Context, seq *engine.Sequence, ids []int32, vocab int, row func([]float32) error) error {
	if err := seq.Prefill(ctx, ids, engine.PrefillOptions{}); err != nil {
		return err
	}
	logits := make([]float32, vocab)
	if err := seq.Logits(logits); err != nil {
		return err
	}
	return row(logits)
}
