package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/paper"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

// need is what a suite reads of the folder of --data.
type need struct {
	flag      string   // of the suite
	paths     []string // in the folder, the first that is there
	what      string
	tasks     []string // that read it; empty is all
	otherwise string   // the value of the flag without it
	without   string   // what the suite does without it; empty: its tasks cannot be run
}

// rulerFiles is where a checkout of NVIDIA/RULER keeps what its scripts downloaded.
const rulerFiles = "RULER/scripts/data/synthetic/json/"

// needs are those of each suite.
var needs = map[string][]need{
	"ruler": {
		{flag: "ruler", paths: []string{"RULER"}, what: "a checkout of NVIDIA/RULER", without: "gollm's own wording of the tasks"},
		{flag: "haystack", paths: []string{"PaulGrahamEssays.json", rulerFiles + "PaulGrahamEssays.json"}, what: "the essays of RULER", tasks: essays(), otherwise: "builtin", without: "needles hidden in sentences that mean nothing"},
		{flag: "squad", paths: []string{"dev-v2.0.json", "squad.json", rulerFiles + "squad.json"}, what: "SQuAD 2.0", tasks: []string{"qa_1"}},
		{flag: "hotpotqa", paths: []string{"hotpot_dev_distractor_v1.json", "hotpotqa.json", rulerFiles + "hotpotqa.json"}, what: "HotpotQA", tasks: []string{"qa_2"}},
		{flag: "cwe-words", paths: []string{"english_words.json", rulerFiles + "english_words.json"}, what: "the word list of RULER", tasks: []string{"cwe"}, without: "cwe of the words that are built in, which are too few near 128k tokens"},
	},
	"longbench": {
		{flag: "longbench", paths: []string{"LongBench"}, what: "a checkout of THUDM/LongBench"},
		{flag: "data", paths: []string{"data", "LongBench/data"}, what: "the folder of the unzipped data.zip of LongBench"},
	},
	"longbench2": {
		{flag: "longbench", paths: []string{"LongBench"}, what: "a checkout of THUDM/LongBench"},
		{flag: "data", paths: []string{"data.json", "LongBench-v2/data.json"}, what: "data.json of THUDM/LongBench-v2"},
	},
	"niah": {{flag: "haystack", paths: []string{"haystack.txt"}, what: "a long text", without: "needles hidden in sentences that mean nothing"}},
}

// essays are the tasks of RULER that hide needles in a text.
func essays() []string {
	return strings.Split(essayTasks(ruler.Tasks()), ", ")
}

// needsOf are those of a suite; one that is not listed reads the folder of its name.
func needsOf(suite string) []need {
	if list, ok := needs[suite]; ok {
		return list
	}
	return []need{{flag: "data", paths: []string{suite}, what: "the data of " + suite}}
}

// checkData refuses a --data that is no folder, or that has nothing which the tables read.
func checkData(dir string, tables []paper.Found) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return userfile.OpenError("--data", dir, "a folder of data sets", err)
	}
	if !info.IsDir() {
		return usage.Errorf("--data %s is a file, want a folder; gollm eval paper --help says what is in it", dir)
	}
	var wanted []string
	for _, f := range tables {
		if f.Table.Suite == nil {
			continue
		}
		for _, n := range needsOf(f.Table.Suite.Name) {
			path, err := n.find(dir)
			if path != "" || err != nil {
				return err
			}
			if text := n.paths[0] + " (" + n.what + ")"; !slices.Contains(wanted, text) {
				wanted = append(wanted, text)
			}
		}
	}
	if len(wanted) == 0 {
		return usage.Errorf("--data %s: these tables read no data; leave it out", dir)
	}
	return usage.Errorf("--data %s has nothing that these tables read: want %s", dir, strings.Join(wanted, ", "))
}

// find is the path of what is needed, "" where the folder does not have it.
func (n need) find(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	for _, name := range n.paths {
		path := filepath.Join(dir, filepath.FromSlash(name))
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("--data: %w", err)
		}
	}
	return "", nil
}

// supply gives the arguments of a suite what its data is, and leaves out of the plan what
// cannot be without data that is not there.
func supply(p *paper.Plan, args *argList, dir string) error {
	var holes []string
	for _, n := range needsOf(p.Table.Suite.Name) {
		if len(n.tasks) > 0 && !slices.ContainsFunc(p.Tasks, func(task string) bool { return slices.Contains(n.tasks, task) }) {
			continue
		}
		path, err := n.find(dir)
		if err != nil {
			return err
		}
		missing := fmt.Sprintf("needs %s: put it into the folder of --data as %s", n.what, strings.Join(n.paths, " or "))
		switch {
		case path != "":
			args.set("--"+n.flag, path)
		case n.without != "":
			if n.otherwise != "" {
				args.set("--"+n.flag, n.otherwise)
			}
			p.Reduced = append(p.Reduced, fmt.Sprintf("%s, without %s", n.without, n.what))
		case len(n.tasks) == 0:
			holes = append(holes, missing)
		default:
			p.Tasks = slices.DeleteFunc(p.Tasks, func(task string) bool {
				left := slices.Contains(n.tasks, task)
				if left {
					p.Left = append(p.Left, task+": "+missing)
				}
				return left
			})
		}
	}
	if len(holes) == 0 && len(p.Tasks) == 0 {
		holes = append(holes, "none of its tasks can be run: "+strings.Join(p.Left, "; "))
	}
	p.Hole = strings.Join(holes, "; and ")
	return nil
}

// argList is the arguments of a command, in which a flag that is set again is replaced.
type argList struct{ words []string }

// set sets a flag; a value of "" is that of a switch.
func (a *argList) set(flag, value string) {
	if i := slices.Index(a.words, flag); i >= 0 {
		end := i + 1
		if end < len(a.words) && !strings.HasPrefix(a.words[end], "--") {
			end++
		}
		a.words = slices.Delete(a.words, i, end)
	}
	a.add(flag, value)
}

// add adds a flag that may be there several times.
func (a *argList) add(flag, value string) {
	a.words = append(a.words, flag)
	if value != "" {
		a.words = append(a.words, value)
	}
}

// setAll sets flags that are written one after the other.
func (a *argList) setAll(words []string) {
	for i := 0; i < len(words); i++ {
		value := ""
		if i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") {
			value = words[i+1]
		}
		a.set(words[i], value)
		if value != "" {
			i++
		}
	}
}
