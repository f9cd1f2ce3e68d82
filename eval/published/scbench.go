package published

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
)

// noTreeSitter is why functions are not scored.
const noTreeSitter = "a function is found in an answer with tree-sitter's parsers, which gollm does not have; the official compute_scores.py scores it"

// scbench is the twelve sets of SCBench: several questions about one text, in a conversation
// or each by itself.
var scbench = &Suite{
	Name: "scbench", Title: "SCBench", Subsets: turnNames(),
	Sets: []Set{
		shared("scbench_kv", "string retrieval", contained),
		shared("scbench_prefix_suffix", "string retrieval", contained),
		shared("scbench_vt", "string retrieval", hundredths),
		{Name: "scbench_repoqa", File: "scbench_repoqa", Group: "semantic retrieval", questions: sharedQuestions, Unscored: noTreeSitter},
		shared("scbench_qa_eng", "semantic retrieval", anyUpper),
		shared("scbench_qa_chn", "semantic retrieval", runeF1),
		shared("scbench_choice_eng", "semantic retrieval", choice),
		shared("scbench_many_shot", "global information", anyUpper),
		shared("scbench_mf", "global information", number(true)),
		shared("scbench_summary", "global information", summary),
		mixed("scbench_summary_with_needles", "scbench_summary", summary),
		mixed("scbench_summary_with_needles", "scbench_passkey", firstNumber),
		mixed("scbench_repoqa_and_kv", "scbench_kv", contained),
		{Name: "scbench_repoqa_and_kv.scbench_repoqa", File: "scbench_repoqa_and_kv", Group: "multi-tasking", questions: sharedQuestions, Unscored: noTreeSitter},
	},
}

// shared is a set, whose file has its name.
func shared(name, group string, score scorer) Set {
	return Set{Name: name, File: name, Group: group, questions: sharedQuestions, score: of(score)}
}

// mixed is the questions of one task in a file that has two.
func mixed(file, task string, score scorer) Set {
	return Set{Name: file + "." + task, File: file, Group: "multi-tasking", questions: sharedQuestions, score: of(score)}
}

// task is the task of a set that is a part of a file, "" of one that is all of it.
func (d Set) task() string { return strings.TrimPrefix(strings.TrimPrefix(d.Name, d.File), ".") }

// sharedTokens are the tokens of an answer, by set or by the task in a mixed one.
var sharedTokens = map[string]int{
	"scbench_choice_eng": 40, "scbench_qa_eng": 40, "scbench_qa_chn": 40, "scbench_kv": 150, "scbench_mf": 5, "scbench_prefix_suffix": 150,
	"scbench_repoqa": 1024, "scbench_summary": 200, "scbench_vt": 30, "scbench_many_shot": 10,
	"scbench_summary_with_needles.scbench_summary": 800, "scbench_summary_with_needles.scbench_passkey": 15,
	"scbench_repoqa_and_kv.scbench_repoqa": 1024, "scbench_repoqa_and_kv.scbench_kv": 80,
}

// maxTurns is how many questions of a row there are names for.
const maxTurns = 20

// TurnName names the questions that are asked as number turn, from 0.
func TurnName(turn int) string { return fmt.Sprintf("turn %d", turn+1) }

func turnNames() []string {
	var names []string
	for i := range maxTurns {
		names = append(names, TurnName(i))
	}
	return names
}

// sharedFile is where a checkout has its prompts, and sharedHash the file's SHA-256 at fb56c91.
const (
	sharedFile = "scbench/eval_utils.py"
	sharedHash = "d777e36d0dd20faaef0c421b3f1bd4ddfdc8cbbb76fff74194c063183f5ec3fc"
)

// LoadShared reads the prompts of a checkout of microsoft/MInference, which SCBench is a part
// of: of each set that of its first question, of a text by itself (with that of its questions,
// where they have one), and of a following question without and with a chat template.
func LoadShared(checkout string) (*Wording, error) {
	w := &Wording{Text: map[string][]string{}}
	for i, name := range []string{"multiturn_templates", "multiturn_templates_scdq", "multiturn_follow_up_templates", "multiturn_follow_up_templates_in_chat_tempate"} {
		part, err := loadWording(checkout, sharedFile, sharedHash, name)
		if err != nil {
			return nil, err
		}
		w.Name = part.Name
		for set, texts := range part.Text {
			if i == 1 && len(texts) == 1 {
				texts = append(texts, "")
			}
			w.Text[set] = append(w.Text[set], texts...)
		}
	}
	return w, nil
}

// OwnShared is our own wording, for users without a checkout. Scores under it are not those of
// the publication, and a report must say so.
var OwnShared = &Wording{Name: "gollm", Text: ownShared()}

func ownShared() map[string][]string {
	all := map[string][]string{}
	for _, d := range scbenchFiles {
		head, question := map[string]string{
			"scbench_kv": "The JSON object below has keys and values.\n\n", "scbench_repoqa": "The code below has many functions. Repeat the one that is described, in a block of code.\n\n",
			"scbench_choice_eng": "This is a book.\n\n", "scbench_qa_eng": "This is a book. Answer in a few words.\n\n", "scbench_qa_chn": "这是一本书。\n\n",
		}[d], map[string]string{
			"scbench_choice_eng": "Question: {question}\nA. {OPTION_A}\nB. {OPTION_B}\nC. {OPTION_C}\nD. {OPTION_D}\n\nThe right letter is",
			"scbench_qa_eng":     "Question: {question}\nAnswer:", "scbench_qa_chn": "{question}\n简短的答案：", "scbench_mf": "{prefix} {input}",
		}[d]
		if question == "" {
			question = "{input}"
		}
		all[d] = []string{head + "{context}\n\n" + question, head + "{context}\n\n", question, "{pre_ans}\n\n" + question, question}
	}
	return all
}

// scbenchFiles are the files of the suite.
var scbenchFiles = []string{
	"scbench_kv", "scbench_prefix_suffix", "scbench_vt", "scbench_repoqa", "scbench_qa_eng", "scbench_qa_chn", "scbench_choice_eng",
	"scbench_many_shot", "scbench_mf", "scbench_summary", "scbench_summary_with_needles", "scbench_repoqa_and_kv",
}

// sharedRow is a row of any set.
type sharedRow struct {
	Context    string       `json:"context"`
	Input      string       `json:"input"` // of some files, for context
	Language   string       `json:"lang"`
	Repository string       `json:"repo"`
	Turns      []sharedTurn `json:"multi_turns"`
}

// sharedTurn is a question of a row.
type sharedTurn struct {
	Input   *string         `json:"input"`
	Answer  json.RawMessage `json:"answer"`
	Options jsonl.Texts     `json:"options"`
	Task    string          `json:"task"`
	Name    string          `json:"name"`
}

// sharedQuestions are the questions of a row that are of the set.
func sharedQuestions(d Set, row []byte, o *Options) ([]Question, error) {
	var r sharedRow
	if err := jsonl.Decode(row, &r); err != nil {
		return nil, err
	}
	if r.Context == "" {
		r.Context = r.Input
	}
	switch {
	case r.Context == "":
		return nil, jsonl.Missing(row, "context", "the text that is asked about")
	case len(r.Turns) == 0:
		return nil, jsonl.Missing(row, "multi_turns", "the list of questions")
	}
	if o.Turns > 0 {
		r.Turns = r.Turns[:min(o.Turns, len(r.Turns))]
	}
	texts, err := o.Wording.texts(d.File, 5)
	if err != nil {
		return nil, err
	}
	w := sharedTexts{texts[0], texts[1], texts[2], texts[3], texts[4]}
	var all []Question
	for i := range r.Turns {
		q, err := r.question(d, i, &w, o)
		if err != nil {
			return nil, fmt.Errorf("multi_turns[%d]: %w", i, err)
		}
		if d.task() == "" || r.Turns[i].Task == d.task() {
			all = append(all, q)
		}
	}
	return all, nil
}

// sharedTexts is the wording of a set.
type sharedTexts struct {
	first    string // of the first question
	alone    string // of the text, without questions
	question string // of a question behind that; "" is that of inChat
	follow   string // of a following question, without a chat template
	inChat   string // of a following question, in the message of a chat template
}

// question is question number i of the row.
func (r *sharedRow) question(d Set, i int, w *sharedTexts, o *Options) (q Question, err error) {
	for k := range i + 1 {
		if err := r.Turns[k].check(d); err != nil {
			return q, err
		}
	}
	turn := &r.Turns[i]
	q.Most = sharedTokens[d.Name]
	q.Hidden = true
	if o.Apart {
		q.Text = fill(w.alone, "{context}", r.Context, "{prefix}", *r.Turns[0].Input)
		q.Split = len(q.Text)
		text := w.question
		if text == "" {
			text = w.inChat
		}
		q.Text += fill(text, turn.slots(d)...)
	} else {
		r.talk(&q, d, i, w)
	}
	q.Answer = Answer{Turn: &i, Task: d.task(), Language: r.Language, Repository: r.Repository, Function: turn.Name}
	q.Answer.Truth, err = turn.truth(d)
	return q, err
}

// talk makes q question number i of a conversation in which the questions before it were
// answered rightly.
func (r *sharedRow) talk(q *Question, d Set, i int, w *sharedTexts) {
	q.Text = fill(w.first, append(r.Turns[0].slots(d), "{context}", r.Context)...)
	q.Talk = []Message{{Role: "user", Content: q.Text}}
	q.Split, q.From = len(q.Text), 1
	for k := 1; k <= i; k++ {
		before, turn := r.Turns[k-1].text(), &r.Turns[k]
		q.Text += fill(w.follow, append(turn.slots(d), "{pre_ans}", before)...)
		q.Talk = append(q.Talk, Message{Role: "assistant", Content: before}, Message{Role: "user", Content: fill(w.inChat, turn.slots(d)...)})
		if d.File == "scbench_summary" {
			q.TalkPrefix = "This paper"
		}
	}
}

// check refuses what cannot be asked.
func (t *sharedTurn) check(d Set) error {
	switch {
	case t.Input == nil:
		return fmt.Errorf("no field input, the question")
	case len(t.Answer) == 0:
		return fmt.Errorf("no field answer, the right answer")
	case d.File == "scbench_choice_eng" && len(t.Options) != len(letters):
		return fmt.Errorf("the field options has %d texts, want four", len(t.Options))
	case d.File == "scbench_mf" && askedFor.FindString(*t.Input) == "":
		return fmt.Errorf("the field input asks for nothing in the words: The ... is")
	case d.task() != "" && sharedTokens[d.File+"."+t.Task] == 0:
		return fmt.Errorf("the field task is %.40q, which %s has not", t.Task, d.File)
	}
	return nil
}

var askedFor = regexp.MustCompile(`The .+ is`)

// slots are the pairs of slots and values of a question.
func (t *sharedTurn) slots(d Set) []string {
	slots := []string{"{input}", *t.Input, "{question}", *t.Input}
	if d.File == "scbench_mf" {
		target := strings.ToLower(askedFor.FindString(*t.Input))
		slots = append(slots, "{prefix}", "What is "+target[:len(target)-3]+"?")
	}
	if d.File == "scbench_choice_eng" {
		for i, text := range t.Options {
			slots = append(slots, "{OPTION_"+letters[i:i+1]+"}", text)
		}
	}
	return slots
}

// text is the right answer as Python writes it into a text.
func (t *sharedTurn) text() string {
	var text string
	if json.Unmarshal(t.Answer, &text) == nil {
		return text
	}
	var texts []string
	if json.Unmarshal(t.Answer, &texts) == nil && texts != nil {
		for i, s := range texts {
			texts[i] = "'" + s + "'"
			if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
				texts[i] = `"` + s + `"`
			}
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	return string(t.Answer)
}

// truth is what the answer is compared with: the official code takes a choice with its letter,
// and a single answer to a question about a book as a list.
func (t *sharedTurn) truth(d Set) (json.RawMessage, error) {
	gold, err := readLabel(t.Answer)
	if err != nil {
		return nil, err
	}
	text, isText := gold.value.(string)
	switch {
	case d.File == "scbench_choice_eng" && isText:
		return choiceOf(text, t.Options)
	case d.File == "scbench_qa_eng" && isText:
		return list([]string{text}), nil
	}
	return t.Answer, nil
}
