package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer"
)

// runFlags are what every evaluation that runs a model can be told.
type runFlags struct {
	model   openmodel.Flags
	kv      string
	attn    []string
	phase   string
	preset  string
	out     string
	seed    uint64
	shard   string
	most    int // tokens of an answer; 0 is what the suite says
	audits  int
	repeat  int  // seeds of what draws at random
	share   bool // one prefill for settings that read prompts alike
	bos     string
	context int
	dry     bool
}

// sparsePhases is what --sparse-phase can be.
var sparsePhases = []string{"prefill", "decode", "question+decode", "all"}

// register registers what says how a run is done.
func (e *runFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&e.out, "out", "o", "", "folder of the run (required); a run that was stopped goes on in it")
	f.StringArrayVar(&e.attn, "attn", []string{"dense"}, "attention method (repeatable): each is evaluated on the same samples and compared with the first")
	f.StringVar(&e.phase, "sparse-phase", "", "where attention is sparse: prefill, decode, question+decode or all (default: as --attn says)")
	f.Uint64Var(&e.seed, "attn-seed", 0, "seed of attention methods that draw")
	f.IntVar(&e.repeat, "repeat", 1, "answer each sample so often where attention draws at random, with seeds from --attn-seed on; scores are means")
	f.IntVar(&e.most, "max-new-tokens", 0, "tokens of an answer (default: what the suite says)")
	f.IntVar(&e.audits, "audit-samples", 1, "samples of each task that are compared with dense attention, for density and mass; 0 is none, another number takes the audit of a folder again")
	f.BoolVar(&e.share, "share-prefill", true, "read a prompt once for all --attn that read it alike; false reads it for each, as its speed needs")
	f.StringVar(&e.bos, "bos", "one", "beginning-of-text tokens: one at the start, official (one more than the text has), or none")
	f.StringVar(&e.shard, "shard", "", "answer part i of n of the samples, written i/n; gollm eval merge joins the parts")
	f.StringVar(&e.kv, "kv", "f16", "element type of the KV cache: f16 or f32")
	f.IntVar(&e.context, "ctx", 0, "tokens of context (default: as many as are needed)")
	f.BoolVar(&e.dry, "dry-run", false, "say what would be run and how long the prompts are, and run nothing")
	openmodel.CompleteAttn(cmd)
	usage.Complete(cmd, "sparse-phase", func() []string { return sparsePhases })
	usage.Complete(cmd, "bos", func() []string { return []string{"one", "official", "none"} })
	e.model.RegisterRun(cmd)
}

// check reports what is wrong with the flags.
func (e *runFlags) check() error {
	if err := e.model.Check(); err != nil {
		return err
	}
	if e.out == "" && !e.dry {
		return usage.Errorf("no folder: name one with -o DIR; it keeps the answers")
	}
	if e.bos != "one" && e.bos != "official" && e.bos != "none" {
		return usage.Errorf("--bos %s, want one, official or none", e.bos)
	}
	if e.most < 0 {
		return usage.Errorf("--max-new-tokens %d, want 0 (what the suite says) or more", e.most)
	}
	if e.audits < 0 {
		return usage.Errorf("--audit-samples %d, want 0 (none) or more", e.audits)
	}
	if e.context < 0 || e.context > openmodel.MaxContext {
		return usage.Errorf("--ctx %d, want 0 (as many as are needed) to %d", e.context, openmodel.MaxContext)
	}
	if e.repeat < 1 || e.repeat > trial.MaxRepeats {
		return usage.Errorf("--repeat %d, want 1 to %d", e.repeat, trial.MaxRepeats)
	}
	if _, err := trial.ParseShard(e.shard); err != nil {
		return usage.Errorf("--shard: %v", err)
	}
	if e.phase != "" && !slices.Contains(sparsePhases, e.phase) {
		return usage.Errorf("--sparse-phase %s, want prefill, decode, question+decode or all", e.phase)
	}
	draws := e.repeat == 1
	for _, a := range e.attn {
		s, err := e.spec(a)
		if err != nil {
			return err
		}
		draws = draws || s.Draws()
	}
	if !draws {
		return usage.Errorf("--repeat %d, but no --attn draws at random: every repeat would be the same", e.repeat)
	}
	c := openmodel.CacheFlags{KV: e.kv}
	_, err := c.DType()
	return err
}

// spec reads one --attn and brings it into the phases of --sparse-phase.
func (e *runFlags) spec(text string) (*sparse.Spec, error) {
	s, err := openmodel.ReadSpec(text)
	if err != nil {
		return nil, usage.Errorf("--attn: %v", err)
	}
	if e.phase == "" || e.phase == "all" || s.String() == "dense" {
		return s, nil
	}
	plain := s.String()
	if strings.Contains(plain, "prefill=") || strings.Contains(plain, "decode=") {
		return nil, usage.Errorf("--sparse-phase %s with --attn %q, which names its phases itself: leave one of them out", e.phase, text)
	}
	if e.phase == "prefill" {
		plain = "prefill=" + plain + " decode=dense"
	} else {
		plain = "prefill=dense decode=" + plain
	}
	if s, err = sparse.Parse(plain); err != nil {
		return nil, usage.Errorf("--sparse-phase %s: %v", e.phase, err)
	}
	return s, nil
}

// suite is what a command evaluates.
type suite struct {
	name  string
	units []trial.Unit
	ident trial.Identity    // what the suite knows of it
	made  map[string]string // files of prompts in the folder that the run made, by unit
	notes []string
	words *longbench.Splitter // that answers were scored over; may be nil
	forks bool                // samples that follow each other begin with the same text
}

// job is a run that is under way.
type job struct {
	flags   *runFlags
	suite   *suite
	folder  *trial.Folder
	model   *openmodel.Model // nil: not opened yet
	shard   trial.Shard
	specs   []*sparse.Spec
	context int
	log     io.Writer

	cost  []unitCost // of the units
	total float64    // cost of what there is to do
	done  float64
	spent time.Duration // on what is in done
}

// execute runs a suite, or goes on with it, and prints what came out.
func (e *runFlags) execute(cmd *cobra.Command, s *suite, tok *tokenizer.Tokenizer) (err error) {
	j := &job{flags: e, suite: s, log: cmd.ErrOrStderr()}
	m, err := j.manifest(cmd.Root().Version)
	if err != nil {
		return err
	}
	if e.dry {
		return j.survey(cmd, "")
	}
	if j.folder, err = trial.Open(e.out, m); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.folder.Abandon())
		}
		err = errors.Join(err, j.folder.Close())
	}()
	j.sayAudits(cmd)
	if err := j.survey(cmd, j.folder.Manifest.Hash); err != nil {
		return err
	}
	if err := j.estimate(); err != nil {
		return err
	}
	ctx := cmd.Context()
	defer j.closeModel()
	for _, g := range j.groups() {
		if err := j.group(ctx, cmd, g, tok); err != nil {
			if ctx.Err() != nil {
				fmt.Fprintf(j.log, "stopped; the same command goes on where it was\n")
				return errors.Join(console.ErrInterrupted, ctx.Err())
			}
			return err
		}
	}
	return finishRun(cmd, e.out, s.words)
}

// parse reads the shard and the attention methods.
func (j *job) parse() (err error) {
	if j.shard, err = trial.ParseShard(j.flags.shard); err != nil {
		return err
	}
	for _, a := range j.flags.attn {
		spec, err := j.flags.spec(a)
		if err != nil {
			return err
		}
		j.specs = append(j.specs, spec)
	}
	return nil
}

// manifest says what the run is; version is that of the program.
func (j *job) manifest(version string) (trial.Manifest, error) {
	e := j.flags
	if err := j.parse(); err != nil {
		return trial.Manifest{}, err
	}
	id := j.suite.ident
	id.Options["device"], id.Options["ctx"] = e.model.Device, fmt.Sprint(e.context)
	if rope := e.model.Rope.Text(); rope != "" {
		id.Options["rope"] = rope
	}
	id.Suite, id.Seed, id.KV, id.Phase, id.BOS = j.suite.name, e.seed, strings.ToLower(e.kv), e.phase, e.bos
	if id.Phase == "" {
		id.Phase = "as written"
	}
	id.NewTokens = e.most
	id.Engine = version
	for _, s := range j.specs {
		id.Settings = append(id.Settings, s.String())
	}
	for i := 0; e.repeat > 1 && i < len(j.specs); i++ {
		id.Repeats = append(id.Repeats, j.times(i))
	}
	var err error
	if id.Model, err = hashModel(e.model.Path); err != nil {
		return trial.Manifest{}, err
	}
	m := trial.Manifest{Identity: id, Shard: j.shard, Notes: j.suite.notes, Made: j.suite.made, About: trial.About{
		Command: os.Args, ModelPath: e.model.Path, ModelName: filepath.Base(e.model.Path), Device: e.model.Device, Version: id.Engine,
		Shared: j.sharing(),
	}}
	for _, u := range j.suite.units {
		m.Units = append(m.Units, u.Info)
	}
	return m, nil
}

// The most that is hashed of a model from its beginning, and how many pieces of
// what size of the rest.
const (
	hashedHead   = 1 << 30
	hashedPieces = 64
	hashedPiece  = 1 << 20
)

// hashModel is the SHA-256 of a model file and its size; of one of more than a
// gibibyte, of that much and of pieces of the rest.
func hashModel(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, info.Size())
	if _, err := io.Copy(h, io.LimitReader(f, hashedHead)); err != nil {
		return "", err
	}
	if rest := info.Size() - hashedHead; rest > 0 {
		for i := range int64(hashedPieces) {
			at := hashedHead + rest/hashedPieces*i
			if _, err := io.Copy(h, io.NewSectionReader(f, at, hashedPiece)); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashFile is the SHA-256 of a file.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// openModel opens the model at the first setting that needs it.
func (j *job) openModel(cmd *cobra.Command) error {
	if j.model != nil {
		return nil
	}
	m, err := j.flags.model.Open(cmd)
	if err != nil {
		return err
	}
	j.model = m
	if err := j.folder.Uses(m.Device.Info().Name); err != nil {
		return err
	}
	return j.flags.fits(j.context, m.Model.Context)
}

// fits refuses prompts that need more tokens of context than --ctx says, or
// without it more than the model was trained for.
func (e *runFlags) fits(need, trained int) error {
	switch {
	case e.context > 0 && need > e.context:
		return fmt.Errorf("prompt and answer need %d tokens, but --ctx is %d; use --ctx %d or shorter lengths", need, e.context, openmodel.RoundUp(need, 64))
	case e.context == 0 && need > trained:
		return fmt.Errorf("prompt and answer need %d tokens, but %s was trained for %d; use shorter lengths, or go beyond the training with --ctx %d",
			need, e.model.Path, trained, openmodel.RoundUp(need, 64))
	}
	return nil
}

// closeModel closes the model where it was opened.
func (j *job) closeModel() {
	if j.model != nil {
		j.model.Close()
	}
}

// answerers makes what answers with a runner.
func answerers(m *openmodel.Model, r *engine.Runner, tok *tokenizer.Tokenizer) trial.Answerers {
	return trial.Answerers{
		Answerer: &trial.Answerer{Runner: r, Vocab: m.Model.Vocab, Ends: tok.EndOfGeneration},
		Decode:   func(ids []int32) string { return tok.Decode(ids, tokenizer.DecodeOptions{Continued: true}) },
	}
}
