package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
)

// survey is what is known of the prompts of a run before it begins. It is kept in
// the folder of the run: reading all prompts of a large one takes minutes.
type survey struct {
	Hash    string     `json:"identity_sha256"`
	Context int        `json:"context"` // tokens of the longest prompt and its answer
	Cost    []unitCost `json:"cost"`    // of each unit, all shards together
}

// unitCost is about how long a unit takes under one setting, as promptCost counts.
type unitCost struct {
	Read  float64 `json:"read"`  // the prompts
	Write float64 `json:"write"` // the answers
}

// promptCost is about how long so many tokens take, in tokens of a short prompt:
// the square is attention.
func promptCost(tokens int) float64 { return float64(tokens) * (1 + float64(tokens)/32768) }

// stepCost is about how many prompt tokens a token of an answer costs.
const stepCost = 8

// costOf is about how long an answer takes.
func costOf(prompt, answer int) unitCost {
	read := promptCost(prompt)
	return unitCost{read, promptCost(prompt+stepCost*answer) - read}
}

// surveyName is its file in the folder of the run.
const surveyName = "survey.json"

// survey reads all prompts once, or what was found when they were read; hash is
// that of the run, "" for a dry one.
func (j *job) survey(cmd *cobra.Command, hash string) error {
	var s survey
	if b, err := trial.ReadFile(j.flags.out, surveyName); hash == "" || err != nil || json.Unmarshal(b, &s) != nil || s.Hash != hash || len(s.Cost) != len(j.suite.units) {
		s = survey{Hash: hash}
		if err := j.readPrompts(cmd, &s); err != nil {
			return err
		}
		if hash != "" {
			b, err := json.Marshal(s)
			if err == nil {
				err = trial.WriteFile(j.flags.out, surveyName, append(b, '\n'))
			}
			if err != nil {
				return err
			}
		}
	}
	j.context = max(s.Context, j.flags.context)
	if j.flags.context > 0 { // what the model was trained for is known later
		if err := j.flags.fits(s.Context, 0); err != nil {
			return err
		}
	}
	j.cost = s.Cost
	return nil
}

// estimate adds up what there is to do: prompts are read once for a group.
func (j *job) estimate() error {
	for _, g := range j.groups() {
		for n, c := range j.cost {
			j.total += (c.Read + c.Write*float64(len(g))) / float64(max(j.shard.Of, 1))
			for _, l := range g {
				answers, err := trial.ReadAnswers(j.folder.Path, j.logName(l, n))
				if err != nil {
					return err
				}
				for _, a := range answers {
					j.total -= shareOf(len(g), a.Extra)
				}
			}
		}
	}
	return nil
}

// shareOf is an answer's part of the work on a prompt in a group of n settings.
func shareOf(n int, e trial.Extra) float64 {
	c := costOf(e.Prompt, e.New)
	return c.Read/float64(n) + c.Write
}

// left is about how long the rest of the run takes.
func (j *job) left() string {
	if j.done <= 0 || j.spent <= 0 || j.total <= j.done {
		return ""
	}
	rest := time.Duration(float64(j.spent) / j.done * (j.total - j.done))
	return ", about " + console.TimeText(rest) + " left"
}

// readPrompts makes all prompts.
func (j *job) readPrompts(cmd *cobra.Command, s *survey) error {
	wait := console.NewBar(j.log, console.Logger(cmd), "reading prompts", len(j.suite.units), " files")
	defer wait.Stop()
	var prompts trial.Prompts
	for n := range j.suite.units {
		if err := j.readUnit(cmd, &j.suite.units[n], s, &prompts); err != nil {
			return err
		}
		wait.At(n + 1)
	}
	for _, note := range prompts.Notes(j.suite.ident) { // said again at the end
		cmd.PrintErrln("note:", console.OneLine(note))
	}
	for _, alarm := range prompts.Alarms() { // too
		cmd.PrintErrln("alarm:", console.OneLine(alarm))
	}
	return nil
}

// readUnit makes the prompts of a unit.
func (j *job) readUnit(cmd *cobra.Command, u *trial.Unit, s *survey, prompts *trial.Prompts) error {
	least, most, sum, n := 0, 0, 0, 0
	var cost unitCost
	var first trial.Sample
	err := u.Each(func(line int, make func() (trial.Sample, error)) error {
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		sample, err := make()
		if err != nil {
			return err
		}
		if line == 0 {
			first = sample
		}
		tokens := len(sample.Prompt)
		prompts.Add(u.Info, line, tokens, sample.Truncated, sample.Alarms)
		s.Context = max(s.Context, tokens+sample.Most)
		if n == 0 || tokens < least {
			least = tokens
		}
		most, sum, n = max(most, tokens), sum+tokens, n+1
		c := costOf(tokens, sample.Most)
		cost.Read, cost.Write = cost.Read+c.Read, cost.Write+c.Write
		return nil
	})
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("%s has no samples", u.Name)
	}
	s.Cost = append(s.Cost, cost)
	if j.flags.dry {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d samples, prompts of %d to %d tokens (mean %.0f), answers of up to %d, BOS at %v, question from token %d on\n",
			u.Name, n, least, most, float64(sum)/float64(n), first.Most, first.BOS, first.Split)
	}
	return err
}
