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
