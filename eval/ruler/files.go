package ruler

import (
	"fmt"
	"path/filepath"
)

// DataPath is where the rows of a task and length are under a folder, as the
// official pipeline has them: LENGTH/data/TASK/validation.jsonl.
func DataPath(dir string, length int, t Task) string {
	return filepath.Join(dir, fmt.Sprint(length), "data", t.Name, "validation.jsonl")
}

// PredictionPath is where the answers to them are: LENGTH/pred/TASK.jsonl.
func PredictionPath(dir string, length int, t Task) string {
	return filepath.Join(dir, fmt.Sprint(length), "pred", t.Name+".jsonl")
}
