package longbench

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/metric"
)

// Item is a question of version 2 with four choices.
type Item struct {
	ID         string `json:"_id"`
	Domain     string `json:"domain"`
	SubDomain  string `json:"sub_domain"`
	Difficulty string `json:"difficulty"` // easy or hard
	Length     string `json:"length"`     // short, medium or long
	Question   string `json:"question"`
	A          string `json:"choice_A"`
	B          string `json:"choice_B"`
	C          string `json:"choice_C"`
	D          string `json:"choice_D"`
	Answer     string `json:"answer"`
	Context    string `json:"context"`
}

// ReadItems reads questions: a JSON array, as the official data.json is, or lines.
// name is what errors call the file.
func ReadItems(name string, r io.Reader) ([]Item, error) {
	raw, err := readObjects(name, r)
	if err != nil {
		return nil, err
	}
	items, from := make([]Item, len(raw)), map[string]string{}
	for i, o := range raw {
		err := jsonl.Decode(o.json, &items[i])
		if err == nil {
			err = items[i].check(o.json)
		}
		id := items[i].ID
		if old, twice := from[id]; err == nil && twice && id != "" {
			err = fmt.Errorf("the _id is %q, which %s has too", id, old)
		}
		from[id] = name + ":" + o.place
		if err != nil {
			return nil, fmt.Errorf("longbench: %s:%s: %w", name, o.place, jsonl.Plain(err))
		}
	}
	return items, nil
}

// check reports what of a question, given as JSON too, cannot be asked or counted.
func (i *Item) check(object []byte) error {
	for n, text := range []string{i.A, i.B, i.C, i.D} {
		if choice := "choice_" + "ABCD"[n:n+1]; text == "" && !has(object, choice) {
			return fmt.Errorf("no field %s, one of the four choices", choice)
		}
	}
	switch {
	case i.Context == "":
		return fmt.Errorf("no field context, the text that is asked about")
	case i.Question == "":
		return fmt.Errorf("no field question")
	}
	if err := checkAnswer(i.Answer); err != nil {
		return err
	}
	return checkGroups(i.Difficulty, i.Length)
}

// checkAnswer refuses a right answer that is no choice.
func checkAnswer(choice string) error {
	if len(choice) != 1 || !strings.Contains("ABCD", choice) {
		return fmt.Errorf("the answer is %q, want A, B, C or D", choice)
	}
	return nil
}

// The groups that answers are averaged in.
var (
	difficulties = []string{"easy", "hard"}
	lengths      = []string{"short", "medium", "long"}
)

// checkGroups refuses what is in no group: the official code takes every difficulty
// but easy for hard, and every length but short and medium for long.
func checkGroups(difficulty, length string) error {
	switch {
	case !slices.Contains(difficulties, difficulty):
		return fmt.Errorf("the field difficulty is %q, want easy or hard", difficulty)
	case !slices.Contains(lengths, length):
		return fmt.Errorf("the field length is %q, want short, medium or long", length)
	}
	return nil
}

// object is one value of a file and where it is.
type object struct {
	json  json.RawMessage
	place string
}

// readObjects reads the objects of an array or of lines.
func readObjects(name string, r io.Reader) ([]object, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("longbench: %s: %w", name, err)
	}
	var all []object
	if trimmed := bytes.TrimSpace(b); bytes.HasPrefix(trimmed, []byte("[")) {
		var list []json.RawMessage
		if err := json.Unmarshal(trimmed, &list); err != nil {
			return nil, fmt.Errorf("longbench: %s: not a JSON array: %w", name, err)
		}
		for i, o := range list {
			all = append(all, object{o, fmt.Sprintf(" item %d", i)})
		}
	} else {
		in := jsonl.NewReader(bytes.NewReader(b))
		for {
			line, number, err := in.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("longbench: %s:%d: %w", name, number, err)
			}
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			if !json.Valid(line) {
				return nil, fmt.Errorf("longbench: %s:%d: %w", name, number, jsonl.Explain(line, fmt.Errorf("invalid JSON")))
			}
			all = append(all, object{bytes.Clone(line), fmt.Sprint(number)})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("longbench: %s has no items", name)
	}
	return all, nil
}

// Form is one of the official prompts of version 2.
type Form string

// The forms.
const (
	ZeroShot  Form = "0shot"
	Thinking  Form = "0shot_cot"     // asks for a chain of thought
	Concluded Form = "0shot_cot_ans" // asks for the answer after one
	NoContext Form = "0shot_no_context"
)

// formHashes are the beginnings of the SHA-256 of the prompts at 2e00731.
var formHashes = map[Form]string{
	ZeroShot: "68a162252bc9ff71", Thinking: "6cc33d92fd8f6116",
	Concluded: "85ec59df4ac0e27a", NoContext: "125fb44183af01ff",
}

// LoadForm reads a prompt from a checkout; known tells whether it is that of the
// commit that this package follows.
func LoadForm(checkout string, f Form) (template string, known bool, err error) {
	path := filepath.Join(checkout, "prompts", string(f)+".txt")
	b, err := os.ReadFile(path)
	if err != nil {
		return "", false, fmt.Errorf("longbench: %s is not a checkout of THUDM/LongBench: %w", checkout, err)
	}
	sum := sha256.Sum256(b)
	return string(b), strings.HasPrefix(hex.EncodeToString(sum[:]), formHashes[f]), nil
}

// Prompt fills a form. The official code replaces one slot after the other, so
// that a slot in a text is filled too.
func (i *Item) Prompt(template, thought string) string {
	for _, s := range [][2]string{
		{"$DOC$", i.Context}, {"$Q$", i.Question}, {"$C_A$", i.A}, {"$C_B$", i.B}, {"$C_C$", i.C}, {"$C_D$", i.D}, {"$COT$", thought},
	} {
		if s[0] == "$COT$" {
			template = strings.ReplaceAll(template, s[0], s[1])
			continue
		}
		template = strings.ReplaceAll(template, s[0], metric.Strip(s[1]))
	}
	return template
}

// The sentences that an answer is looked for in.
var (
	inParens = regexp.MustCompile(`The correct answer is \(([A-D])\)`)
	plain    = regexp.MustCompile(`The correct answer is ([A-D])`)
)

// Extract is the choice that a response names, "" where it names none.
func Extract(response string) string {
	response = strings.ReplaceAll(response, "*", "")
	for _, re := range []*regexp.Regexp{inParens, plain} {
		if m := re.FindStringSubmatch(response); m != nil {
			return m[1]
		}
	}
	return ""
}

// Judged is the accuracies of a file of answers, of 100 with one decimal.
type Judged struct {
	N       int     `json:"n"`
	Nulls   int     `json:"nulls"` // responses that name no choice
	Overall float64 `json:"overall"`
	// Those of the groups are nil where a group has no samples.
	Easy   *float64 `json:"easy"`
	Hard   *float64 `json:"hard"`
	Short  *float64 `json:"short"`
	Medium *float64 `json:"medium"`
	Long   *float64 `json:"long"`
	// Compensated is Overall where a response without a choice counts a quarter.
	Compensated float64   `json:"compensated"`
	Samples     []float64 `json:"-"` // by line, 0 or 1
}

// judgement is the fields of an answer that count.
type judgement struct {
	Judge      *bool   `json:"judge"`
	Pred       *string `json:"pred"`
	Difficulty string  `json:"difficulty"`
	Length     string  `json:"length"`
}

// JudgeFile averages a file of answers in the official form; name is what errors
// call it.
func JudgeFile(name string, r io.Reader) (Judged, error) {
	raw, err := readObjects(name, r)
	if err != nil {
		return Judged{}, err
	}
	all := make([]judgement, len(raw))
	for i, o := range raw {
		err := jsonl.Decode(o.json, &all[i])
		if err == nil && all[i].Judge == nil {
			err = jsonl.Missing(o.json, "judge", "true or false")
		}
		if err == nil {
			err = checkGroups(all[i].Difficulty, all[i].Length)
		}
		if err != nil {
			return Judged{}, fmt.Errorf("longbench: %s:%s: %w", name, o.place, jsonl.Plain(err))
		}
	}
	return judge(all), nil
}

// judge averages answers, which are of known groups.
func judge(all []judgement) Judged {
	j := Judged{N: len(all)}
	right, count := map[string]float64{}, map[string]float64{} // by group; no name is that of two
	total := 0.0
	for _, a := range all {
		x := 0.0
		if *a.Judge {
			x = 1
		}
		if a.Pred == nil {
			j.Nulls++
		}
		for _, g := range []string{a.Difficulty, a.Length} {
			right[g] += x
			count[g]++
		}
		total += x
		j.Samples = append(j.Samples, x)
	}
	rate := func(right, count float64) float64 { return metric.Round(100*right/max(count, 1), 1) }
	j.Overall = rate(total, float64(len(all)))
	j.Compensated = rate(total+float64(j.Nulls)/4, float64(len(all)))
	for g, into := range map[string]**float64{"easy": &j.Easy, "hard": &j.Hard, "short": &j.Short, "medium": &j.Medium, "long": &j.Long} {
		if count[g] > 0 {
			*into = new(rate(right[g], count[g]))
		}
	}
	return j
}

// Split is the byte of the prompt where the question begins: what follows the
// document.
func (i *Item) Split(template string) int {
	head, tail, ok := strings.Cut(template, "$DOC$")
	if !ok {
		return 0
	}
	after := strings.TrimLeft(strings.TrimPrefix(strings.TrimLeft(tail, "\n"), "</text>"), "\n")
	return len(head) + len(metric.Strip(i.Context)) + len(tail) - len(after)
}

// contextKept is how much of a document stays beside an answer, in code points.
const contextKept = 1000

// Judgement is an answer in the official form: the question, and what was made of
// it.
type Judgement struct {
	Item
	Response string  `json:"response"`
	Pred     *string `json:"pred"`
	Judge    bool    `json:"judge"`
}

// Judge is the row of a response.
func (i *Item) Judge(response string) Judgement {
	j := Judgement{Item: *i, Response: metric.Strip(response), Judge: i.Grade(response) == 1}
	if choice := Extract(response); choice != "" {
		j.Pred = &choice
	}
	count := 0
	for at := range j.Context {
		if count == contextKept {
			j.Context = j.Context[:at]
			break
		}
		count++
	}
	return j
}

// Groups are those that questions are averaged in: by difficulty, and by length.
func Groups() []string { return slices.Concat(difficulties, lengths) }

// GradedItem is what a line of answers comes to.
type GradedItem struct {
	Score  float64  // 1 for the right choice, else 0
	Null   bool     // the response names no choice
	Groups []string // of [Groups]
}

// GradeItem scores the response in a line of answers. What the line says of it in pred
// and judge is not taken for it.
func GradeItem(line []byte) (GradedItem, error) {
	var a struct {
		Answer     string  `json:"answer"`
		Difficulty string  `json:"difficulty"`
		Length     string  `json:"length"`
		Response   *string `json:"response"`
	}
	if err := jsonl.Decode(line, &a); err != nil {
		return GradedItem{}, jsonl.Explain(line, err)
	}
	if a.Response == nil {
		return GradedItem{}, jsonl.Missing(line, "response", "the answer as a string")
	}
	if err := checkAnswer(a.Answer); err != nil {
		return GradedItem{}, err
	}
	i := Item{Answer: a.Answer}
	return GradedItem{i.Grade(*a.Response), Extract(*a.Response) == "", []string{a.Difficulty, a.Length}}, checkGroups(a.Difficulty, a.Length)
}

// Grade is 1 for the right choice, else 0.
func (i *Item) Grade(response string) float64 {
	if Extract(response) == i.Answer {
		return 1
	}
	return 0
}
