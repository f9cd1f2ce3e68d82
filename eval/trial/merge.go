package trial

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ReadAnswers reads the answers of a log in the folder of a run, by line. A last line
// that was cut off is left out, and a file that is not there has none.
func ReadAnswers(folder, name string) (map[int]Answer, error) {
	path := filepath.Join(folder, name)
	b, err := ReadFile(folder, name)
	if errors.Is(err, os.ErrNotExist) {
		return map[int]Answer{}, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[int]Answer{}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	err = eachLine(path, bytes.NewReader(b), func(_ int, a Answer) error {
		if _, twice := all[a.Line]; twice {
			return fmt.Errorf("sample %d has an answer already", a.Line)
		}
		all[a.Line] = a
		return nil
	})
	return all, err
}

// Merge joins the folders of the shards of one run into a new folder, in which
// answers are in the order of their samples: the answers that an uninterrupted run on
// one machine writes, byte for byte, with the prompts that it makes. Samples without an
// answer are an error, and nothing is written then, unless partial asks for what there
// is: such a folder is that of a run which was stopped. When ctx is done before anything
// is written, nothing is. command is the command line that the folder says made it.
func Merge(ctx context.Context, out string, folders []string, partial bool, command []string) error {
	if len(folders) == 0 {
		return fmt.Errorf("trial: no folders to merge")
	}
	m, err := commonManifest(folders)
	if err != nil {
		return err
	}
	m.About.Command = command
	prompts, err := findPrompts(ctx, m, folders, partial)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for i, attn := range m.Identity.Settings {
		for _, u := range m.Units {
			if err := ctx.Err(); err != nil {
				return err
			}
			for r := range m.Identity.Times(i) {
				if err := mergeUnit(files, folders, LogName(i, attn, r, u.Name), u, partial); err != nil {
					return err
				}
			}
		}
		if err := mergeAudits(files, folders, i, attn); err != nil {
			return err
		}
	}
	f, err := Open(out, m)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeFile(out, manifestName, f.Manifest); err != nil { // that of a merge before had other shards
		return err
	}
	for name, b := range files {
		if err := WriteFile(out, name, b); err != nil {
			return err
		}
	}
	for name, folder := range prompts {
		b, err := ReadFile(folder, name)
		if err == nil {
			err = WriteFile(out, name, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findPrompts is a shard that has each file of prompts which the run made, by its name
// in the folder: of some shards they may be gone, or not what they were.
func findPrompts(ctx context.Context, m Manifest, folders []string, partial bool) (map[string]string, error) {
	found := map[string]string{}
	for _, unit := range slices.Sorted(maps.Keys(m.Made)) {
		name, changed := filepath.FromSlash(m.Made[unit]), ""
		for _, folder := range folders {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			b, err := ReadFile(folder, name)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) == m.Identity.Data[unit] {
				found[name] = folder
				break
			}
			changed = filepath.Join(folder, name)
		}
		switch {
		case found[name] != "":
		case changed != "":
			return nil, fmt.Errorf("trial: %s was changed since the run made it, and its answers are to what it was; put it back as it was", changed)
		case !partial:
			return nil, fmt.Errorf("trial: no shard has %s, which its answers are to; the command of a shard makes it again", name)
		}
	}
	return found, nil
}

// commonManifest is the manifest of the whole run, of which no shard may be there
// twice.
func commonManifest(folders []string) (Manifest, error) {
	var first Manifest
	var parts []Part
	from := map[Shard]string{}
	for i, path := range folders {
		m, err := ReadManifest(path)
		if err != nil {
			return m, err
		}
		if i == 0 {
			first = m
		}
		if m.Hash != first.Hash {
			return m, fmt.Errorf("trial: %s and %s are not parts of one run: %s", folders[0], path, differences(first.Identity, m.Identity))
		}
		if old, twice := from[m.Shard]; twice {
			return m, fmt.Errorf("trial: %s and %s are both shard %d of %d; name each shard once", old, path, m.Shard.Index, m.Shard.Of)
		}
		from[m.Shard] = path
		parts = append(parts, Part{m.Shard, m.About})
	}
	first.Shard = Shard{Of: 1}
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Compare(a.Shard.Index, b.Shard.Index) })
	first.About.join(parts)
	return first, nil
}

// join makes a what the shards of a run say of it together.
func (a *About) join(parts []Part) {
	a.Parts, a.Devices = parts, nil
	for _, p := range parts {
		for _, device := range p.About.Devices {
			if !slices.Contains(a.Devices, device) {
				a.Devices = append(a.Devices, device)
			}
		}
	}
	for text, of := range map[*string]func(About) string{
		&a.Device:    func(b About) string { return b.Device },
		&a.ModelPath: func(b About) string { return b.ModelPath },
	} {
		var all []string
		for _, p := range parts {
			if x := of(p.About); !slices.Contains(all, x) {
				all = append(all, x)
			}
		}
		*text = strings.Join(all, ", ")
	}
}

// mergeUnit joins the answers of a unit, and their times.
func mergeUnit(files map[string][]byte, folders []string, name string, u Info, partial bool) error {
	all, from := map[int]Answer{}, map[int]string{}
	var times bytes.Buffer
	for _, path := range folders {
		part, err := ReadAnswers(path, name)
		if err != nil {
			return err
		}
		for line, a := range part {
			if err := u.check(filepath.Join(path, name), a); err != nil {
				return err
			}
			if old, twice := all[line]; twice && !bytes.Equal(old.Row, a.Row) {
				return fmt.Errorf("trial: %s: sample %d has one answer in %s and another in %s", name, line, from[line], path)
			}
			all[line], from[line] = a, path
		}
		t, err := ReadFile(path, timesPath(name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		times.Write(t[:bytes.LastIndexByte(t, '\n')+1])
	}
	var b bytes.Buffer
	lines := slices.Sorted(maps.Keys(all))
	for i, line := range lines {
		if line > i && !partial {
			return unanswered(name, i, len(all), u.Count)
		}
		b.Write(all[line].Row)
		b.WriteByte('\n')
	}
	if len(lines) < u.Count && !partial {
		return unanswered(name, len(lines), len(all), u.Count)
	}
	files[name] = b.Bytes()
	files[timesPath(name)] = times.Bytes()
	return nil
}

// unanswered is the error of a sample that no shard has answered.
func unanswered(name string, line, have, want int) error {
	return fmt.Errorf("trial: %s: sample %d has no answer (%d of %d have); finish the shards first", name, line, have, want)
}

// mergeAudits takes the readings of the first folder that has any.
func mergeAudits(files map[string][]byte, folders []string, setting int, attn string) error {
	for _, path := range folders {
		all, err := ReadAudit(path, setting, attn)
		if err != nil {
			return err
		}
		if len(all.Units) > 0 {
			b, err := json.MarshalIndent(all, "", "  ")
			files[filepath.Join(SettingName(setting, attn), AuditName)] = append(b, '\n')
			return err
		}
	}
	return nil
}
