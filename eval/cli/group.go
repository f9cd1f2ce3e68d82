package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer"
)

// leg is a setting, by its number, under one seed: repeat 0 has that of the run.
type leg struct{ setting, repeat int }

// legs is all of them: what draws at random has as many as --repeat says.
func (j *job) legs() []leg {
	var list []leg
	for i := range j.specs {
		for r := range j.times(i) {
			list = append(list, leg{i, r})
		}
	}
	return list
}

// times is how often a setting answers each sample.
func (j *job) times(i int) int {
	if j.specs[i].Draws() {
		return max(1, j.flags.repeat)
	}
	return 1
}

// groups is the settings that are answered together: those that read prompts alike
// have a prompt read once, and differ in what comes after it.
func (j *job) groups() [][]leg {
	var groups [][]leg
	of := map[int][]int{} // the numbers of the groups of a repeat: only those are alike
	for _, l := range j.legs() {
		k := slices.IndexFunc(of[l.repeat], func(at int) bool {
			return j.flags.share && j.specs[l.setting].SamePrefill(j.specs[groups[at][0].setting])
		})
		if k >= 0 {
			at := of[l.repeat][k]
			groups[at] = append(groups[at], l)
			continue
		}
		of[l.repeat] = append(of[l.repeat], len(groups))
		groups = append(groups, []leg{l})
	}
	return groups
}

// sharing is the groups of several settings, as the manifest names them.
func (j *job) sharing() [][]string {
	list := [][]string{}
	for _, g := range j.groups() {
		if len(g) == 1 || g[0].repeat > 0 {
			continue
		}
		var names []string
		for _, l := range g {
			names = append(names, j.specs[l.setting].String())
		}
		list = append(list, names)
	}
	return list
}

// group answers all units under some settings and audits them, with a cache that is
// given back before the next is made.
func (j *job) group(ctx context.Context, cmd *cobra.Command, g []leg, tok *tokenizer.Tokenizer) error {
	g = slices.DeleteFunc(slices.Clone(g), j.finished)
	if len(g) == 0 {
		return nil
	}
	if err := j.openModel(cmd); err != nil {
		return err
	}
	r, keeps, err := j.runner(cmd, g)
	if err != nil && len(g) > 1 {
		cmd.PrintErrf("gollm: prompts are read for each attention method by itself: %s\n", console.Message(err))
		for _, l := range g {
			if err := j.group(ctx, cmd, []leg{l}, tok); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := errors.Join(j.answer(ctx, g, r, keeps, tok), r.Close()); err != nil {
		return err
	}
	return j.audit(ctx, cmd, g, tok)
}

// runner makes the runner of some settings, which have the same seed. keeps tells that it has
// room for a text that samples share: where there is no memory for it, each reads its own.
func (j *job) runner(cmd *cobra.Command, g []leg) (r *engine.Runner, keeps bool, err error) {
	var also []*sparse.Spec
	for _, l := range g[1:] {
		also = append(also, j.specs[l.setting])
	}
	c := openmodel.CacheFlags{KV: j.flags.kv, Attn: j.specs[g[0].setting].String()}
	seed := j.flags.seed + uint64(g[0].repeat)
	if !j.suite.forks || len(also) > 0 {
		r, err = j.model.Runner(&c, j.context, seed, also...)
		return r, j.suite.forks, err
	}
	if r, err = j.model.Runners(&c, j.context, 2, seed); err == nil {
		return r, true, nil
	}
	cmd.PrintErrf("gollm: texts that several questions share are read for each of them: %s\n", console.Message(err))
	r, err = j.model.Runner(&c, j.context, seed)
	return r, false, err
}

// answer answers what is left of all units.
func (j *job) answer(ctx context.Context, g []leg, r *engine.Runner, keeps bool, tok *tokenizer.Tokenizer) error {
	a := answerers(j.model, r, tok)
	a.Keeps = keeps
	defer a.Close()
	for n := range j.suite.units {
		if err := j.unit(ctx, g, n, a); err != nil {
			return err
		}
	}
	return nil
}

// logName is the log of a unit under a setting, in the folder of the run.
func (j *job) logName(l leg, n int) string {
	return trial.LogName(l.setting, j.specs[l.setting].String(), l.repeat, j.suite.units[n].Name)
}

// finished reports whether a setting has nothing left to do.
func (j *job) finished(l leg) bool {
	for n := range j.suite.units {
		answers, err := trial.ReadAnswers(j.folder.Path, j.logName(l, n))
		if err != nil || len(answers) < j.shard.Size(j.suite.units[n].Count) {
			return false
		}
	}
	if !j.audited(l) {
		return true
	}
	audits, err := j.readAudit(l)
	return err == nil && len(audits.Units) == len(j.suite.units)
}

// auditPath is the file of the audit of a setting.
func (j *job) auditPath(l leg) string {
	return filepath.Join(j.folder.Path, trial.SettingName(l.setting, j.specs[l.setting].String()), trial.AuditName)
}

// sayAudits says where --audit-samples was given and changes nothing.
func (j *job) sayAudits(cmd *cobra.Command) {
	if !cmd.Flags().Changed("audit-samples") {
		return
	}
	legs := slices.DeleteFunc(j.legs(), func(l leg) bool { return j.specs[l.setting].String() == "dense" })
	switch {
	case len(legs) == 0:
		fmt.Fprintf(j.log, "--audit-samples %d changes nothing: dense attention reads everything, and there is no other --attn\n", j.flags.audits)
	case j.shard.Index > 0:
		fmt.Fprintf(j.log, "--audit-samples %d changes nothing here: the first shard takes the audit\n", j.flags.audits)
	case j.flags.audits == 0 && slices.ContainsFunc(legs, func(l leg) bool { return there(j.auditPath(l)) }):
		fmt.Fprintf(j.log, "--audit-samples 0: the audits that %s has stay in the tables\n", j.folder.Path)
	}
}

// readAudit is what was read of a setting, nothing where that was of another number
// of samples than --audit-samples says: its means are taken again in whole.
func (j *job) readAudit(l leg) (trial.Audits, error) {
	all, err := trial.ReadAudit(j.folder.Path, l.setting, j.specs[l.setting].String())
	if err != nil {
		return all, err
	}
	for n := range j.suite.units {
		u := &j.suite.units[n]
		if a := all.Units[u.Name]; a != nil && a.Samples != min(j.flags.audits, u.Count) {
			return trial.Audits{}, nil
		}
	}
	return all, nil
}

// unit answers what is left of a unit under some settings.
func (j *job) unit(ctx context.Context, g []leg, n int, a trial.Answerers) (err error) {
	u := &j.suite.units[n]
	total, had := j.shard.Size(u.Count), 0
	var logs []*trial.Log
	defer func() {
		for _, l := range logs {
			err = errors.Join(err, l.Close())
		}
	}()
	for _, l := range g {
		log, err := trial.OpenLog(j.folder.Path, j.logName(l, n))
		if err != nil {
			return err
		}
		logs, had = append(logs, log), had+log.Len()
	}
	if had == total*len(g) {
		return nil
	}
	wait := console.NewBar(j.log, nil, j.title(g)+" "+u.Name, total*len(g), "")
	wait.At(had)
	sums, counts := make([]float64, len(g)), make([]int, len(g))
	var spent time.Duration
	err = u.Answer(ctx, logs, j.shard, a, func(turn int, e trial.Extra, t trial.Times) {
		had++
		wait.At(had)
		sums[turn], counts[turn] = sums[turn]+e.Points(), counts[turn]+1
		j.done += shareOf(len(g), e)
		spent += time.Duration((t.PrefillMs/float64(max(t.Shared, 1)) + t.DecodeMs) * 1e6)
	})
	wait.Stop()
	j.spent += spent
	for k := range g {
		if counts[k] == 0 {
			continue
		}
		score := "not scored"
		if !u.Unscored {
			score = fmt.Sprintf("score %.1f", 100*sums[k]/float64(counts[k]))
		}
		fmt.Fprintf(j.log, "%s %s: %d of %d, %s\n", j.title(g[k:k+1]), u.Name, logs[k].Len(), total, score)
	}
	if spent > 0 {
		fmt.Fprintf(j.log, "%s: %s%s\n", u.Name, console.TimeText(spent), j.left())
	}
	return err
}

// title is the settings of a group.
func (j *job) title(g []leg) string {
	text := fmt.Sprintf("%d attention methods", len(g))
	if len(g) == 1 {
		text = j.specs[g[0].setting].String()
	}
	if r := g[0].repeat; r > 0 {
		text += fmt.Sprintf(", repeat %d", r)
	}
	return text
}

// audited reports whether a setting is compared with dense attention: not dense
// itself, by the first shard only, and once.
func (j *job) audited(l leg) bool {
	return j.flags.audits > 0 && j.shard.Index == 0 && l.repeat == 0 && j.specs[l.setting].String() != "dense"
}

// audit compares the first samples of each unit with dense attention, once the
// answers are there: a runner that is watched is slower.
func (j *job) audit(ctx context.Context, cmd *cobra.Command, g []leg, tok *tokenizer.Tokenizer) (err error) {
	g = slices.DeleteFunc(slices.Clone(g), func(l leg) bool { return !j.audited(l) })
	if len(g) == 0 {
		return nil
	}
	all := make([]trial.Audits, len(g))
	for k, l := range g {
		if all[k], err = j.readAudit(l); err != nil {
			return err
		}
		if all[k].Units == nil && there(j.auditPath(l)) {
			fmt.Fprintf(j.log, "%s: the audit is taken again, of %s of each task\n", j.title(g[k:k+1]), console.Plural(j.flags.audits, "sample"))
		}
	}
	r, _, err := j.runner(cmd, g)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	watch, err := r.Audit(engine.AuditConfig{Every: 4})
	if err != nil {
		return err
	}
	a := answerers(j.model, r, tok)
	var read engine.AuditReport
	a.Read = func() { read = watch.Take() }
	wait := console.NewBar(j.log, nil, "audit of "+j.title(g), len(j.suite.units), " files")
	defer wait.Stop()
	for n := range j.suite.units {
		u := &j.suite.units[n]
		var turns []int
		for k := range g {
			if all[k].Units[u.Name] == nil {
				turns = append(turns, k)
			}
		}
		if len(turns) == 0 {
			continue
		}
		watch.Take()
		err := u.First(ctx, j.flags.audits, a, turns, func(turn int) {
			all[turn].Add(u.Name, 1, read)
			all[turn].Add(u.Name, 0, watch.Take())
		})
		if err != nil {
			return err
		}
		for _, k := range turns {
			if err := trial.WriteAudit(j.folder.Path, g[k].setting, j.specs[g[k].setting].String(), all[k]); err != nil {
				return err
			}
		}
		wait.At(n + 1)
	}
	return nil
}
