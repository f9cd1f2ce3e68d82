package openai

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/sparse"
)

// The limits of a request.
const (
	maxStops    = 16
	maxStopLen  = 1024 // bytes
	maxStopIDs  = 64
	maxTop      = 20 // likeliest tokens beside one
	maxBiases   = 1024
	maxChoices  = 128 // answers of a request: prompts times n
	penaltyLast = 64  // tokens that penalties look at, as in gollm generate
)

// sampled are the fields of every endpoint that writes: how an answer is sampled, and where it ends.
type sampled struct {
	Temperature      *float32           `json:"temperature"`
	TopP             *float32           `json:"top_p"`
	TopK             *int               `json:"top_k"`
	MinP             *float32           `json:"min_p"`
	RepeatPenalty    *float32           `json:"repeat_penalty"`
	PresencePenalty  *float32           `json:"presence_penalty"`
	FrequencyPenalty *float32           `json:"frequency_penalty"`
	Seed             *int64             `json:"seed"`
	LogitBias        map[string]float32 `json:"logit_bias"`
	Stop             texts              `json:"stop"`
	StopTokenIDs     tokenIDs           `json:"stop_token_ids"`
	IgnoreEOS        bool               `json:"ignore_eos"`
	MinTokens        *int               `json:"min_tokens"`
	Attn             *string            `json:"attn"`
}

// params are the fields that /v1/completions and /v1/chat/completions share.
type params struct {
	Model string `json:"model"`
	sampled
	N              *int            `json:"n"`
	MaxTokens      *int            `json:"max_tokens"`
	Stream         bool            `json:"stream"`
	StreamOptions  *streamOptions  `json:"stream_options"`
	ResponseFormat *responseFormat `json:"response_format"`
	TokensAsIDs    bool            `json:"return_tokens_as_token_ids"`
}

// ignoredParams are fields that change nothing here, with the values that they may have;
// none is any.
var ignoredParams = with(ignoredSampling, map[string][]string{
	"user": nil, "metadata": nil, "service_tier": nil, "safety_identifier": nil, "prompt_cache_key": nil, "store": {"false"},
	"best_of": {"1"}, "suffix": {`""`}, "grammar": {`""`},
})

// off are the values of a number that does nothing, and neutral those of a factor.
var off, neutral = []string{"0", "0.0"}, []string{"1", "1.0"}

// ignoredSampling are fields of vLLM and llama-server that clients send with the value that is how it is
// here.
var ignoredSampling = map[string][]string{
	"repetition_penalty": neutral, "length_penalty": neutral, "typical_p": neutral, "repeat_last_n": {"64"}, "mirostat": off, "dry_multiplier": off,
	"xtc_probability": off, "use_beam_search": {"false"}, "early_stopping": {"false"}, "bad_words": {"[]"}, "allowed_token_ids": {"null"},
	"logits_processors": {"null"}, "skip_special_tokens": {"true"}, "spaces_between_special_tokens": {"true"}, "include_stop_str_in_output": {"false"},
	"truncate_prompt_tokens": {"null"}, "prompt_logprobs": {"null"}, "n_probs": {"0"}, "return_token_ids": {"false"}, "priority": {"0"},
	"cache_prompt": {"true"}, "id_slot": {"-1"}, "n_keep": {"0"}, "timings_per_token": {"false"}, "cache_salt": {"null"}, "kv_transfer_params": {"null"},
	"guided_json": {"null"}, "guided_regex": {"null"}, "guided_choice": {"null"}, "guided_grammar": {"null"}, "structured_outputs": {"null"},
	"json_schema": {"null"},
}

// streamOptions are the options of a stream.
type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// ignoredStream are options of a stream that change nothing here.
var ignoredStream = map[string][]string{"include_obfuscation": {"false"}, "continuous_usage_stats": {"false"}}

// UnmarshalJSON refuses unknown fields.
func (o *streamOptions) UnmarshalJSON(b []byte) error {
	type plain streamOptions
	return decode(b, (*plain)(o), ignoredStream)
}

// texts is a string or a list of strings.
type texts []string

// UnmarshalJSON reads either.
func (t *texts) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		if string(b) != "null" {
			*t = texts{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// between refuses a number outside of [low, high].
func between[T int | float32](param string, v *T, low, high T) error {
	if v != nil && !(*v >= low && *v <= high) {
		return invalid(param, "%s is %v, want %v to %v", param, *v, low, high)
	}
	return nil
}

// value is what a field says, or its default.
func value[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// check refuses what no request may say.
func (p *params) check() error {
	for _, err := range []error{
		between("temperature", p.Temperature, 0, 100), between("top_p", p.TopP, 0, 1), between("top_k", p.TopK, -1, math.MaxInt32),
		between("min_p", p.MinP, 0, 1), between("repeat_penalty", p.RepeatPenalty, 0.01, 100),
		between("presence_penalty", p.PresencePenalty, -2, 2), between("frequency_penalty", p.FrequencyPenalty, -2, 2),
		between("n", p.N, 1, maxChoices), between("max_tokens", p.MaxTokens, 0, math.MaxInt32),
		between("min_tokens", p.MinTokens, 0, math.MaxInt32),
		p.checkStop(),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case value(p.TopP, 1) == 0:
		return invalid("top_p", "top_p is 0, want more; top_k 1 is the likeliest token alone")
	case p.StreamOptions != nil && !p.Stream:
		return invalid("stream_options", "stream_options without stream")
	}
	return nil
}

func (p *params) checkStop() error {
	if len(p.Stop) > maxStops {
		return invalid("stop", "%d stop strings, want at most %d", len(p.Stop), maxStops)
	}
	if len(p.StopTokenIDs) > maxStopIDs {
		return invalid("stop_token_ids", "%d tokens, want at most %d", len(p.StopTokenIDs), maxStopIDs)
	}
	for _, text := range p.Stop {
		if text == "" || len(text) > maxStopLen {
			return invalid("stop", "a stop string of %d bytes, want 1 to %d", len(text), maxStopLen)
		}
	}
	return nil
}

// request is the part of a request that the fields say.
func (s *Server) request(p *params) (r serve.Request, err error) {
	if err := p.check(); err != nil {
		return r, err
	}
	if p.Model != "" && p.Model != s.conf.Model {
		return r, s.noModel(p.Model)
	}
	if r.Attn, err = s.attn(p.Attn); err != nil {
		return r, err
	}
	if r.Bias, err = p.bias(); err != nil {
		return r, err
	}
	r.Stop, r.StopIDs, r.IgnoreEnd, r.MinTokens = p.Stop, p.StopTokenIDs, p.IgnoreEOS, value(p.MinTokens, 0)
	r.Sampling = sampling.Params{
		Temperature: value(p.Temperature, 1), TopP: value(p.TopP, 1), TopK: max(value(p.TopK, 0), 0), MinP: value(p.MinP, 0),
		RepeatPenalty: value(p.RepeatPenalty, 1), PresencePenalty: value(p.PresencePenalty, 0), FrequencyPenalty: value(p.FrequencyPenalty, 0),
	}
	if r.Sampling.RepeatPenalty != 1 || r.Sampling.PresencePenalty != 0 || r.Sampling.FrequencyPenalty != 0 {
		r.Sampling.RepeatLastN = penaltyLast
	}
	if p.Seed != nil {
		r.Sampling.Seed, r.Draw = uint64(*p.Seed), uint32(*p.Seed)
	} else {
		r.Sampling.Seed = rand.Uint64()
	}
	return r, nil
}

// maxAttn is the bytes of an attention spec.
const maxAttn = 4096

// attn is the number of the attention spec that a request names, the first where it names
// none. What it says is compared as [sparse.Spec.Same] does: spaces, presets, the order of
// options and those with their defaults make no difference.
func (s *Server) attn(name *string) (int, error) {
	if name == nil {
		return 0, nil
	}
	if i := slices.Index(s.conf.Attn, *name); i >= 0 { // also @FILE, which no client may have read
		return i, nil
	}
	have := strings.Join(s.conf.Attn, "; ")
	if len(*name) > maxAttn {
		return 0, invalid("attn", "attn has %d bytes, want at most %d: one of %s", len(*name), maxAttn, have)
	}
	spec, err := sparse.Parse(*name)
	if unknown := new(sparse.UnknownError); errors.As(err, &unknown) {
		return 0, invalid("attn", "attn %.200q: no method is called %.80q; the server was started with %s", *name, unknown.Name, have)
	} else if err != nil {
		return 0, invalid("attn", "attn %.200q: %.400s; the server was started with %s", *name, errors.Unwrap(err), have)
	}
	if i := slices.IndexFunc(s.specs, spec.Same); i >= 0 {
		return i, nil
	}
	return 0, invalid("attn", "attn %.200q, which is %.200s, is none of those that the server was started with: %s", *name, spec, have)
}

// bias reads logit_bias.
func (p *params) bias() (map[int32]float32, error) {
	if len(p.LogitBias) > maxBiases {
		return nil, invalid("logit_bias", "%d biases, want at most %d", len(p.LogitBias), maxBiases)
	}
	bias := map[int32]float32{}
	for key, x := range p.LogitBias {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != key { // 7 and 07 would be one id with two biases
			return nil, invalid("logit_bias", "logit_bias of %.40q, want the id of a token", key)
		}
		if !(x >= -100 && x <= 100) {
			return nil, invalid("logit_bias", "a logit_bias of %v, want -100 to 100", x)
		}
		bias[int32(id)] = x
	}
	return bias, nil
}

// choices are n requests for a prompt, each with random numbers of its own.
func choices(r serve.Request, n int) []serve.Request {
	all := make([]serve.Request, n)
	for i := range all {
		all[i] = r
		all[i].Sampling.Seed += uint64(i)
		all[i].Draw += uint32(i)
	}
	return all
}

// answerLen is how many tokens an answer may have: what was asked for, or else as many as
// otherwise says, fewer where fewer fit.
func (s *Server) answerLen(prompt int, asked *int, otherwise int) int {
	if asked != nil {
		return *asked
	}
	return max(0, min(otherwise, s.conf.Scheduler.Fits(prompt)))
}
