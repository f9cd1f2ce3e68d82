package published

import (
	"fmt"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/metric"
)

// kvpress is RULER as the leaderboard of KVPress runs it: one file for all tasks, the context
// apart from the question, which is hidden from what compresses the cache.
var kvpress = &Suite{Name: "kvpress-ruler", Title: "RULER of KVPress", Sets: kvpressSets()}

func kvpressSets() []Set {
	var all []Set
	for _, g := range []struct {
		group, tasks string
		score        func(answer string, references []string) float64
	}{
		{"Retrieval", "niah_single_1 niah_single_2 niah_single_3 niah_multikey_1 niah_multikey_2 niah_multikey_3 niah_multivalue niah_multiquery", metric.ContainsAll},
		{"Tracing", "vt", metric.ContainsAll},
		{"Aggregation", "cwe fwe", metric.ContainsAll},
		{"QA", "qa_1 qa_2", metric.ContainsAny},
	} {
		for name := range strings.FieldsSeq(g.tasks) {
			all = append(all, Set{Name: name, Group: g.group, questions: kvpressQuestions, score: of(cleaned(g.score))})
		}
	}
	return all
}

// kvpressQuestions is the question of a row, none where it is of another task.
func kvpressQuestions(d Set, row []byte, o *Options) ([]Question, error) {
	var r struct {
		Context  *string     `json:"context"`
		Question *string     `json:"question"`
		Prefix   *string     `json:"answer_prefix"`
		Answer   jsonl.Texts `json:"answer"`
		Task     string      `json:"task"`
		Most     int         `json:"max_new_tokens"`
	}
	if err := jsonl.Decode(row, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Task == "":
		return nil, jsonl.Missing(row, "task", "the name of the task")
	case r.Task != d.Name:
		return nil, nil
	case r.Context == nil:
		return nil, jsonl.Missing(row, "context", "the text that is asked about")
	case r.Question == nil:
		return nil, jsonl.Missing(row, "question", "the question")
	case r.Prefix == nil:
		return nil, jsonl.Missing(row, "answer_prefix", "what the answer begins with")
	case len(r.Answer) == 0:
		return nil, jsonl.Missing(row, "answer", "the list of right answers")
	case r.Most < 1:
		return nil, fmt.Errorf("the field max_new_tokens is %d, want 1 or more", r.Most)
	}
	return []Question{{
		Text: *r.Context + *r.Question, Split: len(*r.Context), Hidden: !o.Known, Prefix: *r.Prefix, Most: r.Most,
		Answer: Answer{Truth: list(r.Answer), Task: d.Name},
	}}, nil
}
