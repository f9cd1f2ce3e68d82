package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/published"
	"github.com/gollm/gollm/eval/table"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
)

// suiteFlags is what the suites of package published can be told. A suite registers what it has.
type suiteFlags struct {
	textFlags
	from     *published.Suite
	tasks    string
	checkout string
	prompts  string // of the checkout, where it has several
	mode     string
	turns    int
	aware    bool // the question is known while the text is read
	chat     bool // a chat template is asked for where the suite has none

	options published.Options
	texts   func(checkout, prompts string) (*published.Wording, error) // of a checkout
	own     *published.Wording
}

// newSuite makes the command of a suite, whose data is in a folder; more registers its flags.
func newSuite(name, title, long, example string, more func(e *suiteFlags, cmd *cobra.Command)) *cobra.Command {
	e := &suiteFlags{from: published.Find(name)}
	cmd := &cobra.Command{
		Use: name + " -m FILE --data DIR -o DIR", Short: "Evaluate on " + title, Long: long, Example: example, Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.execute(cmd) },
	}
	e.run.model.RegisterPath(cmd)
	e.skips = true
	e.textFlags.register(cmd, "the folder of the data, as it is published: JSON lines or Parquet (required)")
	_ = cmd.MarkFlagDirname("data") // fails only for a flag that does not exist
	cmd.Flags().StringVar(&e.tasks, "tasks", "all", "with commas between them: "+strings.Join(e.from.SetNames(), ", "))
	more(e, cmd)
	e.run.register(cmd)
	return cmd
}

// noChat registers --no-chat, for suites that have a chat template around their prompts.
func (e *suiteFlags) noChat(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.plain, "no-chat", false, "no chat template around any prompt")
}

const mrcrLong = `Evaluate a model on MRCR of OpenAI: conversations in which the user asks several times
for the like, and then for the i-th of the answers again, with a random text before it.

--data is the folder of the published files, 2needle/2needle_0.parquet and so on or
2needle.parquet. The score is 0 where an answer does not begin with the random text, else
the similarity of the rest (difflib). Prompts that are longer than --max-length are left
out, as in the published code, and counted. Bins are of the tokens of this model, where
the publication has those of o200k_base.`

func newMRCR() *cobra.Command {
	return newSuite("mrcr", "MRCR: which of several like answers", mrcrLong,
		"  gollm eval mrcr -m model.gguf --data mrcr --tasks 2needle --max-length 32000 -o mrcr",
		func(e *suiteFlags, cmd *cobra.Command) {
			e.noChat(cmd)
			f := cmd.Flags().Lookup("truncate")
			f.DefValue, e.cut = "skip", "skip"
		})
}

const scbenchLong = `Evaluate a model on SCBench: several questions about one text.

--mode multi-turn asks them in a conversation, in which the questions before one have their
right answers; multi-request asks each by itself, of a text that was read before any
question was known. Either way all that follows the first prompt, or the text, is read token
by token with the attention of decode steps, and the text is read once for its questions.

--data is the folder of the published files: scbench_kv.jsonl or scbench_kv/*.parquet and so
on. --scbench is a checkout of microsoft/MInference, whose prompts are used; without it the
texts around the data are our own, and scores are not those of the publication. repoqa is
answered and not scored.`

func newSCBench() *cobra.Command {
	return newSuite("scbench", "SCBench: several questions about one text", scbenchLong,
		"  gollm eval scbench -m model.gguf --scbench MInference --data SCBench/data --mode multi-request -o scbench",
		func(e *suiteFlags, cmd *cobra.Command) {
			e.noChat(cmd)
			e.own, e.texts = published.OwnShared, func(checkout, _ string) (*published.Wording, error) { return published.LoadShared(checkout) }
			f := cmd.Flags()
			f.StringVar(&e.checkout, "scbench", "", "a checkout of microsoft/MInference, for the official prompts")
			f.StringVar(&e.mode, "mode", modes[0], "how questions share a text: "+strings.Join(modes, " or "))
			f.IntVar(&e.turns, "turns", 5, "questions of each text")
			_ = cmd.MarkFlagDirname("scbench") // fails only for a flag that does not exist
			usage.Complete(cmd, "mode", func() []string { return modes })
		})
}

// modes are how questions of SCBench share a text.
var modes = []string{"multi-turn", "multi-request"}

const infiniteLong = `Evaluate a model on InfiniteBench: twelve tasks of 100k tokens and more.

--data is the folder of the published files, passkey.jsonl and so on. --infinitebench is a
checkout of OpenBMB/InfiniteBench, whose prompts are used, those of --prompts; without it the
texts around the data are our own, and scores are not those of the publication. There is no
chat template around prompts, as in the official code for open models, unless --chat asks for
it. longbook_sum_eng is scored by rougeLsum of rouge_score.`

func newInfiniteBench() *cobra.Command {
	return newSuite("infinitebench", "InfiniteBench", infiniteLong,
		"  gollm eval infinitebench -m model.gguf --infinitebench InfiniteBench --data data --tasks passkey,kv_retrieval -o infinite",
		func(e *suiteFlags, cmd *cobra.Command) {
			e.own, e.texts = published.OwnInfinite, published.LoadInfinite
			f := cmd.Flags()
			f.StringVar(&e.checkout, "infinitebench", "", "a checkout of OpenBMB/InfiniteBench, for the official prompts")
			f.StringVar(&e.prompts, "prompts", published.InfiniteWordings[0], "which of its prompts: "+strings.Join(published.InfiniteWordings, ", "))
			f.BoolVar(&e.chat, "chat", false, "put prompts into the chat template of the model")
			_ = cmd.MarkFlagDirname("infinitebench") // fails only for a flag that does not exist
			usage.Complete(cmd, "prompts", func() []string { return published.InfiniteWordings })
		})
}

const kvpressLong = `Evaluate a model on RULER as the leaderboard of KVPress runs it.

--data is a folder of the published Parquet files of one length, such as ruler/4096, or one
such file. The question is hidden while the text is read, unless --query-aware: it is read
token by token with the attention of decode steps, so that what a method keeps of the text
cannot depend on it. The score is string_match.`

func newKVPress() *cobra.Command {
	return newSuite("kvpress-ruler", "RULER as KVPress runs it", kvpressLong,
		"  gollm eval kvpress-ruler -m Qwen3-8B.gguf --data ruler/4096 --attn dense --attn 'h2o(budget=0.25)' -o kvpress",
		func(e *suiteFlags, cmd *cobra.Command) {
			e.noChat(cmd)
			cmd.Flags().BoolVar(&e.aware, "query-aware", false, "the question is known while the text is read")
		})
}

func (e *suiteFlags) execute(cmd *cobra.Command) error {
	sets, err := e.checkSuite()
	if err != nil {
		return err
	}
	w, err := e.newWriter(cmd, false)
	if err != nil {
		return err
	}
	s := e.textFlags.suite(e.from.Name, w, nil)
	if err := e.wording(s); err != nil {
		return err
	}
	e.options.Turns, e.options.Apart, e.options.Known = e.turns, e.mode == modes[1], e.aware
	s.ident.Options["mode"], s.ident.Options["turns"], s.ident.Options["query_aware"] = e.mode, fmt.Sprint(e.turns), fmt.Sprint(e.aware)
	s.forks = e.from.Name == "scbench" || e.from.Name == "kvpress-ruler" && !e.aware
	for _, d := range sets {
		if err := e.addSet(cmd.Context(), s, d, w); err != nil {
			return err
		}
	}
	if len(s.units) == 0 {
		return fmt.Errorf("%s has no questions that are asked: %s; --max-length allows longer prompts", e.data, strings.Join(s.notes, "; "))
	}
	return e.run.execute(cmd, s, w.tok)
}

// checkSuite reports what is wrong with the flags, and picks the data sets.
func (e *suiteFlags) checkSuite() ([]published.Set, error) {
	if err := e.run.check(); err != nil {
		return nil, err
	}
	if err := e.textFlags.check(); err != nil {
		return nil, err
	}
	if e.mode != "" && e.mode != modes[0] && e.mode != modes[1] {
		return nil, usage.Errorf("--mode %s, want %s", e.mode, strings.Join(modes, " or "))
	}
	if e.turns < 0 {
		return nil, usage.Errorf("--turns %d, want 0 (all) or more", e.turns)
	}
	if e.texts != nil && e.from.Name == "infinitebench" {
		e.plain = !e.chat
	}
	sets, err := e.from.Pick(e.tasks)
	if err != nil {
		return nil, usage.Errorf("--tasks: %v", err)
	}
	return sets, nil
}

// wording reads the texts around the data, where the suite has such.
func (e *suiteFlags) wording(s *suite) error {
	if e.texts == nil {
		return nil
	}
	e.options.Wording = e.own
	if e.checkout != "" {
		var err error
		if e.options.Wording, err = e.texts(e.checkout, e.prompts); err != nil {
			return err
		}
		s.ident.Options["prompts"] = e.prompts
	}
	s.ident.Options["wording"] = e.options.Wording.Name
	if e.options.Wording == e.own {
		s.notes = append(s.notes, "the texts around the data are gollm's own: scores are not those of the publication")
	}
	return nil
}

// unitFile is the file of the answers to a data set: as the official code calls it, where it
// writes one.
func (e *suiteFlags) unitFile(d published.Set) string {
	switch {
	case e.from.Name == "infinitebench":
		return "preds_" + d.Name + ".jsonl"
	case e.from.Name == "scbench" && e.options.Apart:
		return "prediction_" + d.Name + "_scdq.jsonl"
	case e.from.Name == "scbench":
		return "prediction_" + d.Name + "_multi_turn.jsonl"
	}
	return "pred/" + d.Name + ".jsonl"
}

// addSet makes the unit of a data set.
func (e *suiteFlags) addSet(ctx context.Context, s *suite, d published.Set, w *writer) error {
	files, err := table.Files(e.data, d.File)
	if err != nil {
		return userfile.OpenError("--data", e.data, "the folder of the data", err)
	}
	u := trial.Unit{Info: trial.Info{Name: e.unitFile(d), Task: d.Name, Group: d.Group, Unscored: d.Unscored != ""}}
	skipped, limit := map[int]bool{}, 0
	count, err := e.each(files, d, func(line int, q *published.Question) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		limit = w.most(e.answerTokens(q.Most))
		if ids, _ := w.encode(q.Text); e.cut == "skip" && len(ids) > limit {
			skipped[line] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	if count == 0 {
		return fmt.Errorf("%s has no questions of %s", strings.Join(files, ", "), d.Name)
	}
	if len(skipped) > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%s: %d of %d questions were left out, whose prompts have more than %d tokens", d.Name, len(skipped), count, limit))
	}
	if u.Count = count - len(skipped); u.Count == 0 {
		return nil
	}
	if d.Unscored != "" {
		s.notes = append(s.notes, d.Name+" is answered and not scored, and part of no mean: "+d.Unscored)
	}
	u.Each = func(f func(line int, make func() (trial.Sample, error)) error) error {
		asked := 0
		_, err := e.each(files, d, func(line int, q *published.Question) error {
			if skipped[line] {
				return nil
			}
			asked++
			return f(asked-1, func() (trial.Sample, error) { return e.sample(d, q, w) })
		})
		return err
	}
	for _, f := range files {
		name := u.Name
		if len(files) > 1 {
			name += " " + filepath.Base(f)
		}
		if s.ident.Data[name], err = hashFile(f); err != nil {
			return err
		}
	}
	s.units = append(s.units, u)
	return nil
}

// each calls f for the questions of a data set, by their numbers, and counts them: those of
// the first rows, as --samples says.
func (e *suiteFlags) each(files []string, d published.Set, f func(line int, q *published.Question) error) (count int, err error) {
	rows := 0
	for _, file := range files {
		for r, err := range table.Rows(file) {
			if err != nil {
				return count, err
			}
			all, err := d.Questions(r.JSON, rows, &e.options)
			if err != nil {
				return count, fmt.Errorf("%s: %w", r.At, err)
			}
			for i := range all {
				if err := f(count, &all[i]); err != nil {
					return count, err
				}
				count++
			}
			if len(all) > 0 {
				rows++
			}
			if rows == e.samples && rows > 0 {
				return count, nil
			}
		}
	}
	return count, nil
}

// answerTokens is the tokens of an answer: those of --max-new-tokens, or of the suite.
func (e *suiteFlags) answerTokens(own int) int {
	if e.run.most > 0 {
		return e.run.most
	}
	return own
}

// sample makes the prompt of a question.
func (e *suiteFlags) sample(d published.Set, q *published.Question, w *writer) (trial.Sample, error) {
	q.Most = e.answerTokens(q.Most)
	s, err := w.question(q)
	if err != nil {
		return s, fmt.Errorf("%s: row %d: %w", d.Name, q.Answer.ID, err)
	}
	s.Shares = q.Hidden
	row := q.Answer
	if row.Marker != nil {
		var truth string
		if err := json.Unmarshal(row.Truth, &truth); err != nil {
			return s, err
		}
		row.Tokens = len(s.Prompt) + len(w.tok.Encode(truth, tokenizer.EncodeOptions{}))
	}
	s.Row = func(answer string) any {
		a := row
		a.Prediction = answer
		return a
	}
	s.Grade = func(answer string) (float64, error) {
		if d.Unscored != "" {
			return 0, nil
		}
		a := row
		a.Prediction = answer
		return d.Grade(&a)
	}
	return s, nil
}

// question makes the prompt of a question: cut, in the chat template, in tokens.
func (w *writer) question(q *published.Question) (trial.Sample, error) {
	from, err := w.shortenQuestion(q)
	if err != nil {
		return trial.Sample{}, err
	}
	p := wholePrompt{text: q.Text, split: q.Split, hidden: q.Hidden, prefix: q.Prefix, most: q.Most}
	if w.speaker != nil {
		talk, message, at := []chat.Message{{Role: "user", Content: q.Text}}, 0, q.Split
		if q.Talk != nil {
			talk, message, at = nil, q.From, 0
		}
		for _, m := range q.Talk {
			talk = append(talk, chat.Message{Role: m.Role, Content: m.Content})
		}
		if err := w.wrap(&p, talk, message, at); err != nil {
			return trial.Sample{}, err
		}
		p.prefix += q.TalkPrefix
	}
	p.text += p.prefix
	s := w.sample(&p)
	s.Truncated = from
	return s, nil
}

// shortenQuestion cuts the text of a question: all of it, or where the question is hidden what
// is before that. from is its tokens before, 0 where it was not cut.
func (w *writer) shortenQuestion(q *published.Question) (from int, err error) {
	limit := w.most(q.Most)
	if ids, _ := w.encode(q.Text + q.Prefix); len(ids) <= limit {
		return 0, nil
	}
	if q.Talk != nil && !q.Hidden {
		return 0, fmt.Errorf("the conversation has more than %d tokens and cannot be cut; --truncate skip leaves such out, --max-length allows more", limit)
	}
	head, rest := q.Text, ""
	if q.Hidden {
		head, rest = q.Text[:q.Split], q.Text[q.Split:]
	}
	more, _ := w.encode(rest + q.Prefix)
	head, split, from, err := w.shorten(head, q.Split, limit-len(more))
	if err != nil {
		return 0, err
	}
	if q.Hidden {
		split = len(head)
	}
	if q.Talk != nil {
		q.Talk[0].Content = head
	}
	q.Text, q.Split = head+rest, split
	return from + len(more), nil
}
