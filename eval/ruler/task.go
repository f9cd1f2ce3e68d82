package ruler

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is the generator that makes a task.
type Kind int

// The kinds.
const (
	Needle   Kind = iota // values hidden under keys in a text
	Chain                // a value passed from variable to variable
	Common               // the words that a list repeats most
	Frequent             // the most frequent words of a coded text
	Question             // a question about one of many documents
)

// Category is a group of tasks that reports average together.
type Category string

// The categories.
const (
	Retrieval   Category = "retrieval"
	Tracing     Category = "tracing"
	Aggregation Category = "aggregation"
	Answering   Category = "qa"
)

// Task is one of the thirteen tasks.
type Task struct {
	Name     string
	Kind     Kind
	Category Category
	NewToken int  // tokens that an answer may have
	Part     bool // one reference is enough; else every one counts
	Haystack Haystack
	KeyType  string // of needles: words or uuids
	Value    string // of needles: numbers or uuids
	Keys     int    // needles: different keys
	Values   int    // needles: values of a key
	Queries  int    // needles: keys that are asked for
	Data     string // questions: squad or hotpotqa
}

// Haystack is the text around needles.
type Haystack string

// The haystacks.
const (
	Noise   Haystack = "noise"  // the same five sentences again and again
	Essay   Haystack = "essay"  // a text of the user's
	Needles Haystack = "needle" // needles with other keys
)

// tasks are in the order of the official tables.
var tasks = []Task{
	needles("niah_single_1", Noise, "words", "numbers", 1, 1, 1),
	needles("niah_single_2", Essay, "words", "numbers", 1, 1, 1),
	needles("niah_single_3", Essay, "words", "uuids", 1, 1, 1),
	needles("niah_multikey_1", Essay, "words", "numbers", 4, 1, 1),
	needles("niah_multikey_2", Needles, "words", "numbers", 1, 1, 1),
	needles("niah_multikey_3", Needles, "uuids", "uuids", 1, 1, 1),
	needles("niah_multivalue", Essay, "words", "numbers", 1, 4, 1),
	needles("niah_multiquery", Essay, "words", "numbers", 4, 1, 4),
	{Name: "vt", Kind: Chain, Category: Tracing, NewToken: 30},
	{Name: "cwe", Kind: Common, Category: Aggregation, NewToken: 120},
	{Name: "fwe", Kind: Frequent, Category: Aggregation, NewToken: 50},
	{Name: "qa_1", Kind: Question, Category: Answering, NewToken: 32, Part: true, Data: "squad"},
	{Name: "qa_2", Kind: Question, Category: Answering, NewToken: 32, Part: true, Data: "hotpotqa"},
}

// needles is a task of hidden values.
func needles(name string, h Haystack, key, value string, k, v, q int) Task {
	return Task{
		Name: name, Kind: Needle, Category: Retrieval, NewToken: 128,
		Haystack: h, KeyType: key, Value: value, Keys: max(k, q), Values: v, Queries: q,
	}
}

// Tasks lists the thirteen tasks in the official order.
func Tasks() []Task { return slices.Clone(tasks) }

// Offline reports whether the task needs no file: no essays and no questions.
func (t Task) Offline() bool { return t.Haystack != Essay && t.Kind != Question }

// FindTask is the task of that name.
func FindTask(name string) (Task, error) {
	if i := slices.IndexFunc(tasks, func(t Task) bool { return t.Name == name }); i >= 0 {
		return tasks[i], nil
	}
	return Task{}, fmt.Errorf("ruler: no task is called %q; want one of %s", name, strings.Join(TaskNames(), ", "))
}

// TaskNames lists the names of the tasks in the official order.
func TaskNames() []string {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = t.Name
	}
	return names
}

// PickTasks reads a list of names with commas between them, where all stands for
// every task and offline for those that need no file.
func PickTasks(list string) ([]Task, error) {
	var picked []Task
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		group := slices.DeleteFunc(Tasks(), func(t Task) bool {
			return name != "all" && t.Name != name && (name != "offline" || !t.Offline())
		})
		if len(group) == 0 {
			_, err := FindTask(name)
			return nil, err
		}
		for _, t := range group {
			if !slices.Contains(picked, t) {
				picked = append(picked, t)
			}
		}
	}
	return picked, nil
}
