package published

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
)

// infinitebench is the twelve sets of InfiniteBench, of 100k tokens and more.
var infinitebench = &Suite{
	Name: "infinitebench", Title: "InfiniteBench",
	Sets: []Set{
		infinite("passkey", "retrieval", firstNumber),
		infinite("number_string", "retrieval", firstNumber),
		infinite("kv_retrieval", "retrieval", inWords),
		infinite("longdialogue_qa_eng", "dialogue", speaker),
		infinite("longbook_sum_eng", "novel", summary),
		infinite("longbook_choice_eng", "novel", choice),
		infinite("longbook_qa_eng", "novel", wordF1),
		infinite("longbook_qa_chn", "novel", runeF1),
		infinite("math_find", "math", number(false)),
		infinite("math_calc", "math", sequence),
		infinite("code_run", "code", lastInteger),
		infinite("code_debug", "code", letter),
	},
}

// infinite is a set, whose file has its name.
func infinite(name, group string, score scorer) Set {
	return Set{Name: name, File: name, Group: group, questions: infiniteQuestions, score: of(score)}
}

// infiniteTokens are the tokens of an answer.
var infiniteTokens = map[string]int{
	"passkey": 6, "number_string": 12, "kv_retrieval": 50, "longbook_sum_eng": 1200, "longbook_choice_eng": 40, "longbook_qa_eng": 40,
	"longbook_qa_chn": 40, "longdialogue_qa_eng": 40, "math_find": 3, "math_calc": 30000, "code_run": 5, "code_debug": 5,
}

// infiniteFile is where a checkout has its prompts, and infiniteHash the file's SHA-256 at
// 88b3daa.
const (
	infiniteFile = "src/prompt.py"
	infiniteHash = "d49a6891d6bc61522bb428d66a07b092a6bb6bc195aa0fe103eddd6bb39c7f10"
)

// InfiniteWordings are the prompts that a checkout has: those for models without a chat
// template are the first.
var InfiniteWordings = []string{"yarn-mistral", "gpt4", "claude2"}

// LoadInfinite reads the prompts of a checkout of OpenBMB/InfiniteBench, those of one of
// [InfiniteWordings].
func LoadInfinite(checkout, prompts string) (*Wording, error) {
	return loadWording(checkout, infiniteFile, infiniteHash, strings.ReplaceAll(prompts, "-", "_")+"_templates")
}

// OwnInfinite is our own wording, for users without a checkout. Scores under it are not those
// of the publication, and a report must say so.
var OwnInfinite = &Wording{Name: "gollm", Text: map[string][]string{
	"passkey":             {"One sentence of the text below holds a pass key.\n\n{context}\n\n{input}\n\nThe pass key is"},
	"number_string":       {"One sentence of the text below holds a sequence of digits.\n\n{context}\n\n{input}\n\nThe sequence of digits is"},
	"kv_retrieval":        {"The JSON object below has keys and values.\n\n{context}\n\n{input}"},
	"longdialogue_qa_eng": {"In the script below one name of a character was replaced by $$MASK$$.\n\n{context}\n\nThe character behind $$MASK$$ is"},
	"longbook_sum_eng":    {"This is a book.\n\n{context}\n\nIn a few paragraphs, the book says:"},
	"longbook_choice_eng": {"This is a book.\n\n{context}\n\n{question}\nA. {OPTION_A}\nB. {OPTION_B}\nC. {OPTION_C}\nD. {OPTION_D}\n\nThe right letter is"},
	"longbook_qa_eng":     {"This is a book.\n\n{context}\n\nIn a few words, {question}\nAnswer:"},
	"longbook_qa_chn":     {"这是一本书。\n\n{context}\n\n{question}\n简短的答案："},
	"math_find":           {"{prefix}\n\n{context}\n\n{input}"},
	"math_calc":           {"Give every intermediate value of a sum, as in: 2 + 5 - 3 gives [2, 7, 4].\n\n{context} gives"},
	"code_run":            {"This is Python code with a function {func}.\n\n{context}\n\nThe value of {func_call} is"},
	"code_debug":          {"One function of the Python code below was broken on purpose.\n\n{context}\n\nIt is one of\nA. {OPTION_A}\nB. {OPTION_B}\nC. {OPTION_C}\nD. {OPTION_D}\n\nThe right letter is"},
}}

// infiniteRow is a row of any set.
type infiniteRow struct {
	Context string          `json:"context"`
	Content string          `json:"content"` // of early files, for context
	Input   *string         `json:"input"`
	Answer  json.RawMessage `json:"answer"`
	Options jsonl.Texts     `json:"options"`
}

// infiniteQuestions is the question of a row.
func infiniteQuestions(d Set, row []byte, o *Options) ([]Question, error) {
	var r infiniteRow
	if err := jsonl.Decode(row, &r); err != nil {
		return nil, err
	}
	if r.Context == "" {
		r.Context = r.Content
	}
	switch {
	case r.Context == "":
		return nil, jsonl.Missing(row, "context", "the text that is asked about")
	case r.Input == nil:
		return nil, jsonl.Missing(row, "input", "the question")
	case len(r.Answer) == 0:
		return nil, jsonl.Missing(row, "answer", "the right answer")
	}
	slots, err := r.slots(d)
	if err != nil {
		return nil, err
	}
	texts, err := o.Wording.texts(d.Name, 1)
	if err != nil {
		return nil, err
	}
	head, tail, ok := strings.Cut(texts[0], "{context}")
	if !ok {
		return nil, fmt.Errorf("published: the wording %s of %s has no slot {context}", o.Wording.Name, d.Name)
	}
	q := Question{Most: infiniteTokens[d.Name]}
	before := fill(head, slots...) + r.Context
	question, prefix := cutPrefix(tail)
	trimmed := strings.TrimLeft(question, "\n ")
	q.Split = len(before) + len(question) - len(trimmed)
	q.Text, q.Prefix = before+fill(question, slots...), prefix
	q.Answer.Truth, err = r.truth(d)
	return []Question{q}, err
}

// cutPrefix cuts what follows the last slot off a text: what the answer begins with.
func cutPrefix(text string) (question, prefix string) {
	end := strings.LastIndexByte(text, '}') + 1
	return text[:end], text[end:]
}

var (
	functionCall = regexp.MustCompile(`func_[0-9]+\(-?[0-9]+\)`)
	targetNumber = regexp.MustCompile(`The .+ of`)
)

// slots are the pairs of slots and values but for the context.
func (r *infiniteRow) slots(d Set) ([]string, error) {
	slots := []string{"{input}", *r.Input, "{question}", *r.Input}
	switch d.Name {
	case "code_run":
		call := functionCall.FindString(*r.Input)
		if call == "" {
			return nil, fmt.Errorf("the field input calls no function such as func_1(2)")
		}
		name, _, _ := strings.Cut(call, "(")
		slots = append(slots, "{func}", name, "{func_call}", call)
	case "math_find":
		target := targetNumber.FindString(*r.Input)
		if target == "" {
			return nil, fmt.Errorf("the field input asks for no number in the words: The ... of")
		}
		target = strings.ToLower(target)
		slots = append(slots, "{prefix}", "What is "+target[:len(target)-3]+" in the following list?")
	case "longbook_choice_eng", "code_debug":
		if len(r.Options) != len(letters) {
			return nil, fmt.Errorf("the field options has %d texts, want four", len(r.Options))
		}
		for i, text := range r.Options {
			slots = append(slots, "{OPTION_"+letters[i:i+1]+"}", text)
		}
	}
	return slots, nil
}

// letters are those of choices.
const letters = "ABCD"

// truth is what the answer is compared with: of a choice its text and its letter.
func (r *infiniteRow) truth(d Set) (json.RawMessage, error) {
	if d.Name != "longbook_choice_eng" && d.Name != "code_debug" {
		return r.Answer, nil
	}
	gold, err := readLabel(r.Answer)
	if err != nil {
		return nil, err
	}
	if pair, err := gold.texts(); err == nil && len(pair) == 2 && len(pair[1]) == 1 && strings.Contains(letters, pair[1]) {
		return r.Answer, nil
	}
	if gold, err = gold.first(); err != nil {
		return nil, err
	}
	text, err := gold.text()
	if err != nil {
		return nil, err
	}
	return choiceOf(text, r.Options)
}

// choiceOf is the text and the letter of a choice.
func choiceOf(text string, options []string) (json.RawMessage, error) {
	i := slices.Index(options, text)
	if i < 0 || i >= len(letters) {
		return nil, fmt.Errorf("the right answer %.40q is none of the options", text)
	}
	return list([]string{text, letters[i : i+1]}), nil
}

// list is a list of texts as JSON.
func list(texts []string) json.RawMessage {
	b, _ := json.Marshal(texts) // texts are always JSON
	return b
}
