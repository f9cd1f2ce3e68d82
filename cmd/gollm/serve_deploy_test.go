//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// scrape asks a server for its metrics: of each name its type and labels, as a line of the
// table of docs/serve/README.md.
func scrape(t *testing.T, url string) map[string]string {
	t.Helper()
	r, err := http.Get(strings.TrimSuffix(url, "/v1") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	kinds, labels := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(string(b)) {
		if m := regexp.MustCompile(`^# TYPE (\S+) (\S+)`).FindStringSubmatch(line); m != nil {
			kinds[m[1]] = m[2]
			continue
		}
		name, rest, _ := strings.Cut(line, "{")
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, part); ok && kinds[base] == "histogram" {
				name = base
			}
		}
		for _, m := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(rest, -1) {
			if m[1] != "le" && !slices.Contains(labels[name], m[1]) {
				labels[name] = append(labels[name], m[1])
			}
		}
	}
	lines := map[string]string{}
	for name, kind := range kinds {
		slices.Sort(labels[name])
		lines[name] = fmt.Sprintf("| `%s` | %s | `%s` |\n", name, kind, strings.Join(labels[name], "` `"))
	}
	return lines
}

// TestServeContract scrapes a server that has answered, and holds what it says against the table of
// docs/serve/README.md, line for line, and against what dashboard and pool read.
func TestServeContract(t *testing.T) {
	_, url, _ := startServer(t, "--roofline")
	if status, body := complete(url, `{"prompt":"Once","max_tokens":3}`); status != 200 {
		t.Fatal(status, body)
	}
	page, have := contents(t, "../../docs/serve/README.md"), scrape(t, url)
	for name, line := range have {
		ours := strings.HasPrefix(name, "vllm:") || strings.HasPrefix(name, "gollm_")
		if ours != strings.Contains(page, line) {
			t.Errorf("docs/serve/README.md and /metrics differ in %s", line)
		}
	}
	names := regexp.MustCompile(`\b(vllm:|gollm_|process_)\w+`)
	for _, file := range []string{"README.md", "grafana.json", "inferencepool.yaml"} {
		found := names.FindAllString(contents(t, "../../docs/serve/"+file), -1)
		if len(found) < 4 {
			t.Errorf("%s names %d metrics", file, len(found))
		}
		for _, name := range found {
			if strings.HasSuffix(name, "_") { // a family
				continue
			}
			if _, ok := have[strings.TrimSuffix(name, "_bucket")]; !ok {
				t.Errorf("%s reads %s, which /metrics has not", file, name)
			}
		}
	}
}

// dashboard is what a test wants of docs/serve/grafana.json.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ RefID, Expr, LegendFormat string }
	}
}

// TestServeDashboard holds the panels of the dashboard against a server: each reads metrics by labels that
// they have, and each metric but the sizes of the cache has a panel; none covers another.
func TestServeDashboard(t *testing.T) {
	_, url, _ := startServer(t, "--roofline")
	if status, body := complete(url, `{"prompt":"Once","max_tokens":3}`); status != 200 {
		t.Fatal(status, body)
	}
	var d dashboard
	if err := json.Unmarshal([]byte(contents(t, "../../docs/serve/grafana.json")), &d); err != nil {
		t.Fatal(err)
	}
	have, read := scrape(t, url), map[string]bool{"vllm:cache_config_info": true}
	metric, labels := regexp.MustCompile(`\b((?:vllm:|gollm_|process_)\w+)(?:{([^}]*)})?`), regexp.MustCompile(`\bby \(([^)]*)\)`)
	for i, p := range d.Panels {
		for _, q := range d.Panels[:i] {
			if a, b := p.GridPos, q.GridPos; p.ID == q.ID || a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%q and %q have one number or lie on each other", p.Title, q.Title)
			}
		}
		for _, x := range p.Targets {
			found := metric.FindAllStringSubmatch(x.Expr, -1)
			if len(found) == 0 || strings.Count(x.Expr, "(") != strings.Count(x.Expr, ")") {
				t.Errorf("%q: %q", p.Title, x.Expr)
			}
			var wanted []string // labels
			for _, by := range labels.FindAllStringSubmatch(x.Expr, -1) {
				wanted = append(wanted, strings.Split(by[1], ", ")...)
			}
			for _, m := range found {
				name := strings.TrimSuffix(m[1], "_bucket")
				read[name] = true
				own := slices.Clone(wanted)
				for _, matcher := range strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' }) {
					label, _, _ := strings.Cut(strings.TrimSpace(matcher), "=")
					own = append(own, label)
				}
				for _, label := range own {
					if label != "le" && label != "pod" && !strings.Contains(have[name], "`"+label+"`") { // Prometheus adds the pod
						t.Errorf("%q reads %s by %s, which it has not: %q", p.Title, name, label, have[name])
					}
				}
			}
		}
	}
	for name := range have {
		if (strings.HasPrefix(name, "vllm:") || strings.HasPrefix(name, "gollm_")) && !read[name] {
			t.Errorf("no panel reads %s", name)
		}
	}
}

// documents are those of a YAML file.
func documents(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader([]byte(contents(t, path))))
	for {
		var one map[string]any
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, one)
	}
}

// at is the value at a path of names and numbers of a document.
func at(t *testing.T, document any, path ...any) any {
	t.Helper()
	for i, step := range path {
		switch v := document.(type) {
		case map[string]any:
			document = v[step.(string)]
		case []any:
			document = v[step.(int)]
		}
		if document == nil {
			t.Fatalf("there is nothing at %v", path[:i+1])
		}
	}
	return document
}

// TestServeDeployment reads the files of docs/serve: they are YAML and JSON, their labels,
// ports and secrets meet, and the arguments of the container are flags of gollm serve.
func TestServeDeployment(t *testing.T) {
	byKind := map[string]any{}
	for _, file := range []string{"kubernetes.yaml", "inferencepool.yaml"} {
		for _, d := range documents(t, "../../docs/serve/"+file) {
			byKind[d["kind"].(string)] = d
		}
	}
	kinds := slices.Sorted(maps.Keys(byKind))
	if want := []string{"Deployment", "HTTPRoute", "InferencePool", "NetworkPolicy", "PodMonitor", "Secret", "Service"}; !slices.Equal(kinds, want) {
		t.Fatalf("%v, want %v", kinds, want)
	}
	pod := at(t, byKind["Deployment"], "spec", "template")
	label := at(t, pod, "metadata", "labels", "app")
	container := at(t, pod, "spec", "containers", 0)
	port, portName := at(t, container, "ports", 0, "containerPort"), at(t, container, "ports", 0, "name")
	for _, c := range []struct{ got, want any }{
		{at(t, byKind["Deployment"], "spec", "selector", "matchLabels", "app"), label},
		{at(t, byKind["Service"], "spec", "selector", "app"), label},
		{at(t, byKind["PodMonitor"], "spec", "selector", "matchLabels", "app"), label},
		{at(t, byKind["InferencePool"], "spec", "selector", "matchLabels", "app"), label},
		{at(t, byKind["NetworkPolicy"], "spec", "podSelector", "matchLabels", "app"), label},
		{at(t, byKind["Service"], "spec", "ports", 0, "targetPort"), portName},
		{at(t, byKind["PodMonitor"], "spec", "podMetricsEndpoints", 0, "port"), portName},
		{at(t, container, "readinessProbe", "httpGet", "port"), portName},
		{at(t, byKind["InferencePool"], "spec", "targetPorts", 0, "number"), port},
		{at(t, byKind["NetworkPolicy"], "spec", "ingress", 0, "ports", 0, "port"), port},
		{at(t, byKind["HTTPRoute"], "spec", "rules", 0, "backendRefs", 0, "name"), at(t, byKind["InferencePool"], "metadata", "name")},
		{at(t, pod, "spec", "volumes", 1, "secret", "secretName"), at(t, byKind["Secret"], "metadata", "name")},
		{at(t, byKind["PodMonitor"], "spec", "podMetricsEndpoints", 0, "authorization", "credentials", "name"), at(t, byKind["Secret"], "metadata", "name")},
	} {
		if c.got != c.want {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	checkServeArgs(t, at(t, container, "args").([]any))
}

// checkServeArgs wants arguments that gollm serve takes, from other hosts with a key.
func checkServeArgs(t *testing.T, args []any) {
	t.Helper()
	var texts []string
	for _, a := range args {
		texts = append(texts, a.(string))
	}
	cmd := newServe()
	if err := cmd.ParseFlags(texts); err != nil {
		t.Errorf("%q: %v", texts, err)
	}
	if key := cmd.Flags().Lookup("api-key-file"); !key.Changed {
		t.Error("the server of the Deployment wants no key")
	}
	if port := cmd.Flags().Lookup("port"); port.Value.String() != "8080" {
		t.Errorf("it listens on port %s", port.Value)
	}
}
