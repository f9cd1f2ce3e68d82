package openai

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/serve"
)

// Metrics counts what a scheduler does, under the names that routers and dashboards for
// vLLM know, and gollm_ for what has no such name. It is the scheduler's observer.
type Metrics struct {
	registry          *prometheus.Registry
	attn              []string
	first, next, e2e  prometheus.Histogram
	prompt, generated *prometheus.CounterVec            // by attention spec
	ended             *prometheus.CounterVec            // by reason
	passes            map[string]*prometheus.CounterVec // by attention spec and phase
	limit             func(serve.Pass) time.Duration
	handler           http.Handler
}

// The counters of passes, and what they count.
var passCounters = map[string]string{
	"gollm_passes_total":                   "Prefill chunks and decode steps.",
	"gollm_pass_seconds_total":             "Time of these passes.",
	"gollm_select_seconds_total":           "Of it, selecting what attention reads, where that is timed.",
	"gollm_attend_seconds_total":           "Of it, attention itself, where that is timed.",
	"gollm_attention_pairs_total":          "Pairs of query and key of causal attention, where they are counted.",
	"gollm_attention_selected_pairs_total": "Of them, those that were selected; the quotient is the density.",
	"gollm_kv_rows_total":                  "Stored rows of the past of each query and kv head, where they are counted.",
	"gollm_k_rows_read_total":              "Of them, those whose key was read, to select included.",
	"gollm_v_rows_read_total":              "Of them, those whose value was read.",
	"gollm_limit_seconds_total":            "Time that decode steps take at least by the roofline (--roofline).",
}

// The buckets of the histograms, in seconds.
var (
	waitBuckets = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	stepBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
)

// NewMetrics makes the counters of a model with some attention specs.
func NewMetrics(model string, attn []string) *Metrics {
	labels := prometheus.Labels{"model_name": model}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, ConstLabels: labels})
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, []string{label})
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), attn: attn,
		first:     histogram("vllm:time_to_first_token_seconds", "Time from a request to its first token.", waitBuckets),
		next:      histogram("vllm:inter_token_latency_seconds", "Time between two tokens of an answer.", stepBuckets),
		e2e:       histogram("vllm:e2e_request_latency_seconds", "Time from a request to the end of its answer.", waitBuckets),
		prompt:    counter("gollm_prompt_tokens_total", "Tokens of prompts, by attention spec.", "attn"),
		generated: counter("gollm_generation_tokens_total", "Tokens of answers, by attention spec.", "attn"),
		ended:     counter("vllm:request_success_total", "Answers, by why they ended.", "finished_reason"),
	}
	m.passes = map[string]*prometheus.CounterVec{}
	for name, help := range passCounters {
		m.passes[name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, []string{"attn", "phase"})
		m.registry.MustRegister(m.passes[name])
	}
	m.registry.MustRegister(m.first, m.next, m.e2e, m.prompt, m.generated, m.ended)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// First observes the first token of an answer.
func (m *Metrics) First(d time.Duration) { m.first.Observe(d.Seconds()) }

// Next observes another token.
func (m *Metrics) Next(d time.Duration) { m.next.Observe(d.Seconds()) }

// Done observes the end of an answer.
func (m *Metrics) Done(attn int, d time.Duration, r serve.Result) {
	m.e2e.Observe(d.Seconds())
	m.prompt.WithLabelValues(m.attn[attn]).Add(float64(r.Prompt))
	m.generated.WithLabelValues(m.attn[attn]).Add(float64(r.Generated))
	m.ended.WithLabelValues(endName(r.Stop)).Inc()
}

// Limit makes the roofline known: the minimum time of a decode step whose reads are counted.
func (m *Metrics) Limit(of func(serve.Pass) time.Duration) { m.limit = of }

// Pass observes a prefill chunk or a decode step.
func (m *Metrics) Pass(attn int, p serve.Pass) {
	phase := "prefill"
	if p.Decode {
		phase = "decode"
	}
	add := func(name string, x float64) { m.passes[name].WithLabelValues(m.attn[attn], phase).Add(x) }
	add("gollm_passes_total", 1)
	add("gollm_pass_seconds_total", p.Took.Seconds())
	add("gollm_select_seconds_total", p.Select.Seconds())
	add("gollm_attend_seconds_total", p.Attend.Seconds())
	if !p.Counted {
		return
	}
	add("gollm_attention_pairs_total", float64(p.Reads.Pairs))
	add("gollm_attention_selected_pairs_total", float64(p.Reads.Selected))
	add("gollm_kv_rows_total", float64(p.Reads.Past))
	add("gollm_k_rows_read_total", float64(p.Reads.K))
	add("gollm_v_rows_read_total", float64(p.Reads.V))
	if m.limit != nil && p.Decode {
		add("gollm_limit_seconds_total", m.limit(p).Seconds())
	}
}

// endName is vLLM's name for why an answer ended.
func endName(why engine.StopReason) string {
	switch why {
	case engine.StopEnd, engine.StopString:
		return "stop"
	case engine.StopLength, engine.StopContext:
		return "length"
	case engine.StopCancelled:
		return "abort"
	}
	return "error"
}

// Watch adds what the scheduler knows of itself.
func (m *Metrics) Watch(s *serve.Scheduler, model string) {
	labels := prometheus.Labels{"model_name": model}
	gauge := func(name, help string, of func(serve.Stats) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return of(s.Stats()) }))
	}
	counter := func(name, help string, of func(serve.Stats) int) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(of(s.Stats())) }))
	}
	gauge("vllm:num_requests_running", "Requests that have a slot.", func(t serve.Stats) float64 { return float64(t.Running) })
	gauge("vllm:num_requests_waiting", "Requests in the queue.", func(t serve.Stats) float64 { return float64(t.Waiting) })
	gauge("vllm:kv_cache_usage_perc", "Share of the KV cache that sequences have, 0 to 1.", func(t serve.Stats) float64 { return float64(t.Used) / float64(t.Blocks) })
	gauge("gollm_prefix_cache_blocks", "Blocks that the prefix cache keeps and no sequence has.", func(t serve.Stats) float64 { return float64(t.Cached) })
	counter("vllm:prompt_tokens_total", "Tokens of prompts that were read.", func(t serve.Stats) int { return t.Prompt })
	counter("vllm:generation_tokens_total", "Tokens that were written.", func(t serve.Stats) int { return t.Generated })
	counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked up in the prefix cache.", func(t serve.Stats) int { return t.Queried })
	counter("vllm:prefix_cache_hits_total", "Of them, those that it had.", func(t serve.Stats) int { return t.Hit })
	counter("vllm:num_preemptions_total", "Sequences that lost their pages.", func(t serve.Stats) int { return t.Preempted })
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "vllm:cache_config_info", Help: "The sizes of the KV cache, as labels.", ConstLabels: prometheus.Labels{
		"model_name": model, "block_size": strconv.Itoa(device.PageLen), "num_gpu_blocks": strconv.Itoa(s.Stats().Blocks),
	}})
	info.Set(1)
	m.registry.MustRegister(info)
}

// metrics answers Prometheus.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	if s.conf.Metrics == nil {
		return notFound("there are no metrics")
	}
	s.conf.Metrics.handler.ServeHTTP(w, r)
	return nil
}
