package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gollm/gollm/cpu" // registers the backend
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer"
)

// modelFlags say which model runs on what.
type modelFlags struct {
	path    string
	device  string
	threads int
}

// registerDevice registers what runs the model; it follows the flags that a
// newcomer looks for.
func (m *modelFlags) registerDevice(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.device, "device", autoDevice, "where to run: "+strings.Join(deviceNames(), ", ")+"; cuda:1 is the second GPU")
	f.IntVarP(&m.threads, "threads", "t", 0, "CPU threads; 0, the default, is one for each core")
	completeWith(cmd, "device", deviceNames)
}

// registerPath registers -m alone, for commands that do not run the model.
func (m *modelFlags) registerPath(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&m.path, "model", "m", "", "the model, a GGUF file (required)")
	_ = cmd.MarkFlagFilename("model", "gguf") // fails only for a flag that does not exist
}

// check reports what is wrong with the flags.
func (m *modelFlags) check() error {
	if err := m.checkPath(); err != nil {
		return err
	}
	return m.checkDevice()
}

// checkPath reports what is wrong with the flag of registerPath.
func (m *modelFlags) checkPath() error {
	if m.path == "" {
		return usagef("no model: name a GGUF file with -m FILE, for example -m testdata/demo.gguf")
	}
	return nil
}

// checkDevice reports what is wrong with the flags of registerDevice.
func (m *modelFlags) checkDevice() error {
	if _, err := parseDevice(m.device); err != nil {
		return err
	}
	if m.threads < 0 || m.threads > cpu.MaxThreads {
		return usagef("--threads %d, want 1 to %d, or 0 for one for each core", m.threads, cpu.MaxThreads)
	}
	return nil
}

// maxContext bounds --ctx, in tokens: more than any memory holds, and so few that
// the size of their cache is a number.
const maxContext = min(1<<40, math.MaxInt)

// cacheFlags say how large the KV cache is and what attention reads of it.
type cacheFlags struct {
	context int
	kv      string
	attn    string
	audit   auditFlags // registered by the commands that print an audit
	last    int        // tokens that penalties look at, of --repeat-last-n
}

// register registers the flags; context is the help of --ctx.
func (c *cacheFlags) register(cmd *cobra.Command, context string) {
	c.registerSize(cmd, context)
	cmd.Flags().StringVar(&c.attn, "attn", "dense", attnUsage)
	completeAttn(cmd)
}

// attnUsage describes --attn.
const attnUsage = "attention system, or @FILE.yaml; gollm attn lists them"

// registerSize registers all but --attn.
func (c *cacheFlags) registerSize(cmd *cobra.Command, context string) {
	cmd.Flags().IntVar(&c.context, "ctx", 0, context)
	c.registerType(cmd)
}

// registerType registers --kv alone.
func (c *cacheFlags) registerType(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.kv, "kv", "f16", "element type of the KV cache: f16 or f32")
	completeWith(cmd, "kv", func() []string { return []string{"f16", "f32"} })
}

// spec reads --attn.
func (c *cacheFlags) spec() (*sparse.Spec, error) {
	s, err := readSpec(c.attn)
	if err != nil {
		return nil, usagef("--attn: %v", err)
	}
	return s, nil
}

// dtype reads --kv.
func (c *cacheFlags) dtype() (device.DType, error) {
	switch strings.ToLower(c.kv) {
	case "f16":
		return device.F16, nil
	case "f32":
		return device.F32, nil
	}
	return 0, usagef("--kv %s, want f16 or f32", c.kv)
}

// check reports what is wrong with the flags.
func (c *cacheFlags) check() error {
	if _, err := c.spec(); err != nil {
		return err
	}
	if c.context < 0 || c.context > maxContext {
		return usagef("--ctx %d, want a number of tokens from 1 to %d", c.context, maxContext)
	}
	if err := c.audit.check(); err != nil {
		return err
	}
	_, err := c.dtype()
	return err
}

// samplingFlags say how a token is chosen.
type samplingFlags struct {
	device.Sampling
	order  string
	random bool // the seed was drawn, not given
}

func (s *samplingFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Float32Var(&s.Temperature, "temp", 0.8, "temperature: 0 always takes the likeliest token, higher is more varied")
	f.IntVar(&s.TopK, "top-k", 40, "choose among this many likeliest tokens; 0 is all")
	f.Float32Var(&s.TopP, "top-p", 0.95, "choose among the likeliest tokens that make up this share; 1 is all")
	f.Float32Var(&s.MinP, "min-p", 0.05, "leave out tokens less likely than this share of the likeliest; 0 is none")
	f.Float32Var(&s.RepeatPenalty, "repeat-penalty", 1, "make recent tokens less likely by this factor of their logits; 1 is off, 1.1 is usual")
	f.Float32Var(&s.PresencePenalty, "presence-penalty", 0, "subtract this from the logits of recent tokens")
	f.Float32Var(&s.FrequencyPenalty, "frequency-penalty", 0, "subtract this from the logits of recent tokens, each time that they occur")
	f.IntVar(&s.RepeatLastN, "repeat-last-n", 64, "how many of the last tokens, of prompt and text, are recent to the penalties; 0 is none, -1 the whole context")
	f.StringVar(&s.order, "sampler-order", device.DefaultOrder.String(), "the samplers in the order in which they work, with semicolons between them; one that is not named is off")
	f.Uint64Var(&s.Seed, "seed", 0, "same seed, same text (default: random, and printed)")
}

// check reports what is wrong with the flags, and draws a seed where none was
// given.
func (s *samplingFlags) check(cmd *cobra.Command) error {
	for _, f := range []struct {
		name         string
		value        float32
		least, limit float32
	}{
		{"temp", s.Temperature, 0, 100}, {"top-p", s.TopP, 0, 1}, {"min-p", s.MinP, 0, 1},
		{"repeat-penalty", s.RepeatPenalty, 0, 100}, {"presence-penalty", s.PresencePenalty, -100, 100}, {"frequency-penalty", s.FrequencyPenalty, -100, 100},
	} {
		if !(f.value >= f.least && f.value <= f.limit) {
			return usagef("--%s %v, want %v to %v", f.name, f.value, f.least, f.limit)
		}
	}
	switch {
	case s.RepeatPenalty < 0.01: // less makes logits infinite
		return usagef("--repeat-penalty %v, want 0.01 to 100; 1 is off", s.RepeatPenalty)
	case s.TopP == 0:
		return usagef("--top-p 0, want more than 0; 1 is all tokens, and --top-k 1 is the likeliest alone")
	case s.TopK < 0:
		return usagef("--top-k %d, want 0 or more", s.TopK)
	case s.RepeatLastN < -1 || s.RepeatLastN > maxContext:
		return usagef("--repeat-last-n %d, want 0 or more tokens, or -1 for the whole context", s.RepeatLastN)
	}
	if s.random = !cmd.Flags().Changed("seed"); s.random {
		s.Seed = uint64(rand.Uint32()) // short enough to type, exact in any JSON reader
	}
	return s.checkOrder(cmd)
}

// in makes --repeat-last-n -1 the length of the context, and is what the penalties look
// at.
func (s *samplingFlags) in(context int) int {
	if s.RepeatLastN < 0 {
		s.RepeatLastN = context
	}
	return s.RepeatLastN
}

// stageFlags are the flags of a stage.
var stageFlags = []struct {
	stage device.SamplerStage
	flags []string
}{
	{device.StagePenalties, []string{"repeat-penalty", "presence-penalty", "frequency-penalty", "repeat-last-n"}},
	{device.StageTopK, []string{"top-k"}},
	{device.StageTopP, []string{"top-p"}},
	{device.StageMinP, []string{"min-p"}},
	{device.StageTemperature, []string{"temp"}},
}

// checkOrder reports what is wrong with --sampler-order, and flags that it makes useless.
func (s *samplingFlags) checkOrder(cmd *cobra.Command) (err error) {
	if s.Order, err = device.ParseSamplerOrder(s.order); err != nil {
		return usagef("--sampler-order: %v", err)
	}
	for _, of := range stageFlags {
		for _, name := range of.flags {
			if cmd.Flags().Changed(name) && !s.Order.Has(of.stage) {
				return usagef("--%s does nothing: --sampler-order %s leaves %v out", name, s.order, of.stage)
			}
		}
	}
	return nil
}

// textFlags say where a text comes from.
type textFlags struct {
	text string
	file string
}

func (t *textFlags) register(cmd *cobra.Command, what string) {
	cmd.Flags().StringVarP(&t.text, "prompt", "p", "", what)
	cmd.Flags().StringVarP(&t.file, "file", "f", "", "read it from a file, every byte as it is; - is stdin")
	_ = cmd.MarkFlagFilename("file")
}

// check reports what is wrong with the flags.
func (t *textFlags) check(cmd *cobra.Command) error {
	given, file := cmd.Flags().Changed("prompt"), cmd.Flags().Changed("file")
	switch {
	case given && file:
		return usagef("both -p and -f: a text comes from one of them")
	case !given && !file && isTerminal(cmd.InOrStdin()):
		return usagef("no text: pass -p TEXT or -f FILE, or pipe it in")
	}
	return nil
}

// read returns the text, byte for byte.
func (t *textFlags) read(cmd *cobra.Command) (string, error) {
	if cmd.Flags().Changed("prompt") {
		return t.text, nil
	}
	b, err := readFile(cmd, "-f", t.file, "a text")
	return string(b), err
}

// readFile returns the contents of the file that flag names, or of stdin where
// path is "" or "-"; want is what is expected in it.
func readFile(cmd *cobra.Command, flag, path, want string) ([]byte, error) {
	if path != "" && path != "-" {
		b, err := readLimited(path, mostText)
		return b, fileError(flag, path, want, err)
	}
	return readWhole(cmd.InOrStdin(), "stdin", mostText)
}

// The largest files that are read whole, in bytes.
const (
	mostText = 1 << 30 // a prompt or a text to score
	mostSpec = 1 << 20 // a description that somebody wrote
)

// readLimited returns the contents of a file of at most limit bytes; devices and
// pipes that never end are larger.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readWhole(f, path, limit)
}

// readWhole returns all of r, which errors call name, of at most limit bytes.
func readWhole(r io.Reader, name string, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", name, err)
	case int64(len(b)) > limit:
		return nil, tooLarge(name, limit)
	}
	return b, nil
}

func tooLarge(name string, limit int64) error {
	return fmt.Errorf("%s is larger than %s, the most that is read; give less", name, sizeText(limit))
}

// readLine returns the next line with its end, which errors call name, of at most limit
// bytes. The last line may come with io.EOF.
func readLine(r *bufio.Reader, name string, limit int64) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if int64(len(line)+len(part)) > limit {
			return "", tooLarge(name, limit)
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			return string(line), err
		}
	}
}

// tokenFlags say how text becomes tokens.
type tokenFlags struct {
	noBOS     bool
	noSpecial bool
}

func (t *tokenFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&t.noBOS, "no-bos", false, "do not begin with the beginning-of-text token")
	cmd.Flags().BoolVar(&t.noSpecial, "no-special", false, "read <|eot_id|> and its like as plain text, not as tokens")
}

// encode turns the beginning of a text into tokens: BOS is added where the
// model wants it and the text does not have it, EOS never is.
func (t *tokenFlags) encode(tok *tokenizer.Tokenizer, text string) []int32 {
	ids := tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: !t.noSpecial})
	if t.noBOS || !tok.AddsBOS() || (len(ids) > 0 && ids[0] == tok.BOS()) {
		return ids
	}
	return append([]int32{tok.BOS()}, ids...)
}

// tokenCount reads a number of tokens, at least 1: 8k is 8192, 1M is 1048576.
func tokenCount(text string) (int, bool) {
	text, unit := strings.ToLower(strings.TrimSpace(text)), 1
	if digits, ok := strings.CutSuffix(text, "k"); ok {
		text, unit = digits, 1<<10
	} else if digits, ok := strings.CutSuffix(text, "m"); ok {
		text, unit = digits, 1<<20
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxContext/unit {
		return 0, false
	}
	return n * unit, true
}

// lengths is a flag of numbers of tokens: "512,8k"; "0" alone is none.
type lengths []int

// Set reads the numbers.
func (l *lengths) Set(text string) error {
	*l = nil
	if text == "0" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, ok := tokenCount(part)
		if !ok || n > maxContext/2 {
			return fmt.Errorf("%q is no number of tokens; want for example 512,8k", part)
		}
		*l = append(*l, n)
	}
	return nil
}

// String is the numbers as Set reads them.
func (l *lengths) String() string {
	if len(*l) == 0 {
		return "0"
	}
	var parts []string
	for _, n := range *l {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ",")
}

// Type is how help names a value.
func (*lengths) Type() string { return "lengths" }

// once is a flag whose second value would replace the first one without a word.
type once struct {
	pflag.Value
	given bool
	text  string // what was given
}

// Set takes the first value, and the same one again.
func (o *once) Set(text string) error {
	if o.given && text != o.text {
		return &givenTwice{o.text, text}
	}
	o.given, o.text = true, text
	return o.Value.Set(text)
}

// givenTwice is two values of a flag that takes one.
type givenTwice struct{ first, second string }

func (e *givenTwice) Error() string {
	return fmt.Sprintf("is given twice, %q and %q", e.first, e.second)
}

// takeOnce makes the flags that one might think are read twice refuse that, in all
// commands where they are not repeatable. Of others the last one counts, so that a
// command line can end with what differs from an alias.
func takeOnce(cmd *cobra.Command) {
	for _, name := range []string{"attn", "prompt", "file"} {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			continue
		}
		if _, list := f.Value.(pflag.SliceValue); !list {
			f.Value = &once{Value: f.Value}
		}
	}
	for _, sub := range cmd.Commands() {
		takeOnce(sub)
	}
}

// completeWith makes the shell complete a flag with names.
func completeWith(cmd *cobra.Command, flag string, names func() []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, // fails only for a flag that does not exist
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return names(), cobra.ShellCompDirectiveNoFileComp
		})
}
