package usage

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// foreign is a flag of another engine.
type foreign struct {
	names string // without dashes
	flag  string // ours, which a command must have for the hint to help; "" is none
	hint  string
}

// habits are the flags of llama.cpp, vLLM and ollama that fingers know, with what
// gollm has instead.
var habits = []foreign{
	{"ngl gpu-layers n-gpu-layers mg main-gpu sm split-mode ts tensor-split dev", "device", "gollm picks the device with --device"},
	{"c ctx-size n-ctx num-ctx context", "ctx", "the length of the context is --ctx"},
	{"predict n-predict max-tokens num-predict max-new-tokens", "tokens", "the number of tokens to write is -n"},
	{"temperature", "temp", "the temperature is --temp"},
	{"s rng-seed", "seed", "the seed is --seed"},
	{"ctk ctv cache-type-k cache-type-v", "kv", "the element type of the KV cache, keys and values alike, is --kv"},
	{"fa flash-attn", "attn", "attention is exact without a flag, and --attn selects another method"},
	{"sys system-prompt", "system", "the system prompt is --system"},
	{"chat-template jinja", "template", "the model's own chat template is used, and --template names another one"},
	{"r reverse-prompt", "stop", "the text that ends the generation is --stop"},
	{"cnv conversation i interactive if interactive-first st single-turn", "chat", "a conversation is gollm chat; --chat answers one message"},
	{"cnv conversation i interactive if interactive-first", "", "a conversation is gollm chat"},
	{"tb threads-batch", "threads", "the number of threads is -t, for prompts and new tokens alike"},
	{"np parallel max-num-seqs", "slots", "how many sequences run at once is --slots"},
	{"max-model-len", "ctx", "the length of a sequence is --ctx"},
	{"api-key", "api-key-file", "the key is in a file: --api-key-file FILE"},
	{"served-model-name a alias", "name", "the name of the model to clients is --name"},
	{"allowed-origins", "allow-origin", "each origin whose pages may call is an --allow-origin"},
	{"kv-cache-dtype", "kv", "the element type of the KV cache is --kv"},
	{"gpu-memory-utilization num-gpu-blocks-override", "cache", "the tokens of the KV cache are --cache"},
	{"tp tensor-parallel-size pp pipeline-parallel-size", "device", "a model runs on one device, which --device names"},
	{"enable-prefix-caching no-enable-prefix-caching", "no-prefix-cache", "the prefix cache is on, and --no-prefix-cache turns it off"},
	{"enable-chunked-prefill max-num-batched-tokens", "max-stall", "gollm cuts prompts itself; how long answers wait for a part of one is --max-stall"},
	{"metrics", "roofline", "/metrics is always there"},
	{"b batch-size ub ubatch-size np parallel", "", "gollm cuts prompts itself, and there is nothing to set"},
	{"mmap no-mmap mlock", "", "gollm always maps the file, and there is nothing to set"},
	{"no-display-prompt e escape", "", "gollm prints the continuation only, and takes the text byte for byte"},
	{"log-disable verbose-prompt", "verbose", "gollm says little unless -v is given"},
	{"hf hf-repo mu model-url", "model", "gollm downloads nothing: name a GGUF file with -m"},
	{"rope-factor", "rope-scale", "the factor of RoPE scaling is --rope-scale"},
	{"rope-freq-scale", "rope-scale", "RoPE is scaled by --rope-scale N, which is --rope-freq-scale 1/N"},
	{"rope-base", "rope-freq-base", "the base of RoPE is --rope-freq-base"},
	{"rope-orig-ctx", "yarn-orig-ctx", "the context before YaRN is --yarn-orig-ctx"},
	{"yarn-ext-factor", "rope-scaling", "YaRN is on with --rope-scaling yarn and off with none or linear"},
	{"output", "out", "the file to write is -o, or --out"},
	{"samplers sampler-seq sampling-seq", "sampler-order", "what is done to the logits, and in which order, is --sampler-order, with the names of llama.cpp's --samplers"},
}

// habit is the hint for a flag of another engine, "" where there is none that
// helps with cmd.
func habit(cmd *cobra.Command, name string) string {
	for _, f := range habits {
		for known := range strings.FieldsSeq(f.names) {
			if known == name && (f.flag == "" || cmd.Flags().Lookup(f.flag) != nil) {
				return f.hint
			}
		}
	}
	return ""
}

// numberKinds says what a flag of a type wants, by the names that pflag has for
// types.
var numberKinds = map[string]string{
	"int": "a whole number", "uint64": "a whole number of 0 or more", "uint": "a whole number of 0 or more",
	"float32": "a number", "float64": "a number", "intSlice": "whole numbers such as 512,2048",
	"lengths": "numbers of tokens such as 512,8k, or 0 for none",
}

// FlagError explains a flag that could not be parsed.
func FlagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(args) > 0 {
		return UnknownCommand(cmd, args) // whose flags these are
	}
	unknown := new(pflag.NotExistError)
	if errors.As(err, &unknown) {
		return unknownFlag(cmd, unknown)
	}
	invalid := new(pflag.InvalidValueError)
	if errors.As(err, &invalid) {
		f := invalid.GetFlag()
		if twice := new(givenTwice); errors.As(err, &twice) {
			also := ""
			if f.Name == "attn" {
				also = "; several work together as --attn 'NAME + NAME'"
			}
			return Errorf("--%s %v: leave one of them out%s", f.Name, twice, also)
		}
		if err := spelledOut(cmd, f.Shorthand+invalid.GetValue()); err != nil && f.Shorthand != "" {
			return err
		}
		if want := numberKinds[f.Value.Type()]; want != "" {
			return Errorf("--%s %q, want %s; see %s --help", f.Name, invalid.GetValue(), want, cmd.CommandPath())
		}
	}
	return Errorf("%v; see %s --help", err, cmd.CommandPath())
}

// unknownFlag explains a flag that cmd does not have.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	name, cluster := unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()
	if cluster != "" {
		if err := spelledOut(cmd, cluster); err != nil {
			return err
		}
		name = "-" + name
	} else {
		name = "--" + name
	}
	if hint := habit(cmd, strings.TrimLeft(name, "-")); hint != "" {
		return Errorf("%s: %s", name, hint)
	}
	if !cmd.HasParent() {
		if owner := ownerOf(cmd, strings.TrimLeft(name, "-")); owner != "" {
			return Errorf("%s: name a command first, as in gollm %s %s; gollm --help lists the commands", name, owner, name)
		}
	}
	if near := nearestFlag(cmd, name[1:]); near != "" && cluster == "" {
		return Errorf("unknown flag %s; did you mean --%s?", name, near)
	}
	return Errorf("unknown flag %s; see %s --help", name, cmd.CommandPath())
}

// ownerOf is a command that has a flag of that name, or of that letter: generate,
// which most look for, if it does.
func ownerOf(root *cobra.Command, name string) string {
	owner := ""
	for _, cmd := range root.Commands() {
		f := cmd.Flags().Lookup(name)
		if len(name) == 1 {
			f = cmd.Flags().ShorthandLookup(name)
		}
		if f != nil && (owner == "" || cmd.Name() == "generate") {
			owner = cmd.Name()
		}
	}
	return owner
}

// nearestFlag is the flag of cmd that name is most likely a misspelling of, or
// "".
func nearestFlag(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return Nearest(strings.TrimLeft(name, "-"), names)
}
