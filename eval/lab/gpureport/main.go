// Command gpureport measures what a GPU build of gollm does on this machine, and
// writes one Markdown table and one JSON file of it. scripts/gpu-report.sh runs it.
//
// Every row is there from the beginning, as unmeasured; a part that runs fills its
// rows, and one that cannot says why. So a row is never lost, and never passes
// because nobody looked.
//
// Start reading at parts.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	var r report
	flag.StringVar(&r.bin.gollm, "gollm", "bin/gollm", "the command, of make cuda")
	flag.StringVar(&r.bin.models, "randommodel", "bin/randommodel", "what makes models")
	flag.StringVar(&r.bin.cuda, "cuda-test", "bin/cuda.test", "the tests of ./cuda")
	flag.StringVar(&r.bin.engine, "engine-test", "bin/engine.test", "the tests of ./engine")
	flag.StringVar(&r.bin.systems, "systems", "bin/systems", "what runs one attention method")
	flag.StringVar(&r.bin.load, "load", "bin/load", "the clients of gollm serve")
	flag.StringVar(&r.bin.hashnets, "hashnets", "bin/hashnets", "what makes networks for hashattention")
	flag.StringVar(&r.device, "device", "cuda", "what --device takes")
	flag.StringVar(&r.commit, "commit", "", "of the binaries")
	flag.StringVar(&r.folder, "models", "", "folder for the models, 50 GB; empty is a temporary one, in memory where that is large enough")
	flag.BoolVar(&r.small, "small", false, "small models and lengths: to try the report, not the GPU")
	flag.StringVar(&r.only, "only", "", "parts to run, with commas between, each by how its name begins: "+strings.Join(names(r.parts()), ", ")+"; empty is all")
	flag.DurationVar(&r.limit, "limit", 570*time.Second, "time for everything; what does not fit is unmeasured")
	markdown := flag.String("markdown", "gpu-report.md", "the table")
	json := flag.String("json", "gpu-report.json", "the figures")
	into := flag.String("into", "", "a Markdown file that takes the table too, between <!-- gpu-report --> and <!-- /gpu-report -->")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.run(ctx); err != nil {
		fail(err)
	}
	for path, write := range map[string]func(*os.File) error{*markdown: r.writeMarkdown, *json: r.writeJSON} {
		if err := writeTo(path, write); err != nil {
			fail(err)
		}
	}
	if *into != "" {
		if err := putInto(*into, *markdown); err != nil {
			fail(err)
		}
	}
	fmt.Printf("%s and %s: %s\n", *markdown, *json, r.summary())
	if r.count(failed) > 0 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "gpu-report:", err)
	os.Exit(1)
}

// putInto replaces what stands between two marks of a file.
func putInto(path, markdown string) error {
	const begin, end = "<!-- gpu-report -->\n", "<!-- /gpu-report -->"
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	table, err := os.ReadFile(markdown)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no %s and %s", path, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(path, []byte(before+begin+string(table)+end+after), 0o666)
}

// writeTo makes a file.
func writeTo(path string, write func(*os.File) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// report is what is measured with.
type report struct {
	bin    struct{ gollm, models, cuda, engine, systems, hashnets, load string }
	device string
	commit string
	folder string
	small  bool
	only   string
	limit  time.Duration

	start time.Time
	about about
	rows  []*row
	made  map[string]*making // models by name

	torchMS map[string]float64 // of a layer, by shape; empty without PyTorch
}

// run measures part after part.
func (r *report) run(ctx context.Context) error {
	all, err := r.asked(r.parts())
	if err != nil {
		return err
	}
	r.start = time.Now()
	ctx, cancel := context.WithDeadline(ctx, r.start.Add(r.limit))
	defer cancel()
	for _, path := range []*string{&r.bin.gollm, &r.bin.models, &r.bin.cuda, &r.bin.engine, &r.bin.systems, &r.bin.hashnets, &r.bin.load} {
		if full, err := filepath.Abs(*path); err == nil {
			*path = full
		}
	}
	if r.folder == "" {
		folder, err := os.MkdirTemp(roomiest(), "gollm-report-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		r.folder = folder
	}
	for _, p := range all {
		for _, row := range p.rows {
			row.Part, row.Unmeasured = p.name, "not reached"
		}
		r.rows = append(r.rows, p.rows...)
	}
	r.makeModels(ctx, names(all))
	for _, p := range all {
		r.runPart(ctx, p)
	}
	r.about.Seconds = time.Since(r.start).Seconds()
	for _, m := range r.made { // whoever still writes ends with ctx
		cancel()
		<-m.done
	}
	return nil
}

// names are those of parts.
func names(parts []part) []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

// asked are the parts that --only names, and the devices; the others are noted.
func (r *report) asked(parts []part) ([]part, error) {
	if r.only == "" {
		return parts, nil
	}
	var prefixes []string
	for _, prefix := range strings.Split(r.only, ",") {
		prefix = strings.ToLower(strings.TrimSpace(prefix))
		if !slices.ContainsFunc(names(parts), func(name string) bool { return strings.HasPrefix(strings.ToLower(name), prefix) }) || prefix == "" {
			return nil, fmt.Errorf("--only %q: no part begins with %q; there are: %s", r.only, prefix, strings.Join(names(parts), ", "))
		}
		prefixes = append(prefixes, prefix)
	}
	var some []part
	for i, p := range parts {
		if i == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(strings.ToLower(p.name), prefix) }) {
			some = append(some, p)
		} else {
			r.about.NotAsked = append(r.about.NotAsked, p.name)
		}
	}
	return some, nil
}

// slower is how much more time a part has with small models: on an emulated GPU.
const slower = 10

// runPart runs a part within its time and says why rows of it have no figure.
func (r *report) runPart(ctx context.Context, p part) {
	began := time.Now()
	why := ""
	switch {
	case ctx.Err() != nil:
		why = fmt.Sprintf("no time was left of %v", r.limit)
	default:
		limit := p.limit
		if r.small {
			limit *= slower
		}
		own, cancel := context.WithTimeout(ctx, limit)
		if err := p.run(own, p.rows); err != nil {
			why = err.Error()
			if own.Err() == context.DeadlineExceeded {
				why = fmt.Sprintf("it took longer than %v", time.Since(began).Round(time.Second))
			}
		}
		cancel()
	}
	for _, row := range p.rows {
		if row.Unmeasured == "not reached" && why != "" {
			row.Unmeasured = why
		}
	}
	fmt.Printf("%4.0f s  %s: %s\n", time.Since(r.start).Seconds(), p.name, ofRows(p.rows))
}
