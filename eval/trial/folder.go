package trial

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Identity is all that answers depend on. Two runs with the same identity give
// the same answers.
type Identity struct {
	Suite     string            `json:"suite"`
	Engine    string            `json:"engine"`        // version of this program that computes
	Model     string            `json:"model_sha256"`  // of the file
	Settings  []string          `json:"settings"`      // attention, in full
	Seed      uint64            `json:"seed"`          // of what attention draws
	KV        string            `json:"kv"`            // type of the cache
	Phase     string            `json:"sparse_phase"`  // where attention is sparse
	Template  string            `json:"template"`      // chat template, its text
	BOS       string            `json:"bos"`           // policy
	Prefix    string            `json:"answer_prefix"` // policy, where the suite has one
	Data      map[string]string `json:"data_sha256"`   // by unit
	Era       string            `json:"era,omitempty"`
	Wording   string            `json:"wording,omitempty"`
	NewTokens int               `json:"max_new_tokens"` // 0: those of the suite
	MaxPrompt int               `json:"max_prompt"`     // 0: no prompt is cut
	Samples   int               `json:"samples"`        // first so many of each unit; 0 is all
	Options   map[string]string `json:"options"`        // what else there is
	// Repeats is how often each setting answers, with seeds from Seed on; nil is once.
	Repeats []int `json:"repeats,omitempty"`
}

// Times is how often a setting answers each sample.
func (i *Identity) Times(setting int) int {
	if setting < len(i.Repeats) {
		return max(1, i.Repeats[setting])
	}
	return 1
}

// Hash names the identity, also one that was written and read: bytes that are not UTF-8, as the
// chat template of a model may have, are written as U+FFFD escaped and encoded again unescaped.
func (i Identity) Hash() string {
	b, err := json.Marshal(i)
	if err != nil {
		panic("trial: Identity: " + err.Error()) // maps of strings always encode
	}
	sum := sha256.Sum256(bytes.ReplaceAll(b, []byte(`\ufffd`), []byte("\uFFFD")))
	return hex.EncodeToString(sum[:])
}

// Manifest is what a folder says about itself.
type Manifest struct {
	Hash     string   `json:"identity_sha256"`
	Identity Identity `json:"identity"`
	Shard    Shard    `json:"shard"`
	Units    []Info   `json:"units"`
	Notes    []string `json:"notes"` // what a report must say
	About    About    `json:"about"`
	// Made is the files in the folder that the run made for itself, of those whose hashes
	// are in Identity.Data, by the same names; theirs are with slashes.
	Made map[string]string `json:"made,omitempty"`
}

// Info says what a unit is.
type Info struct {
	Name   string `json:"name"` // path of its answers in the folder of a setting, with slashes
	Task   string `json:"task"`
	Group  string `json:"group"`  // of tasks that average together
	Length int    `json:"length"` // tokens asked for; 0 where the suite has no lengths
	Count  int    `json:"count"`  // samples, of all shards together
	// Unscored is true where this program cannot score the answers: they are kept for
	// a program that does, and are part of no mean.
	Unscored bool `json:"unscored,omitempty"`
}

// About is what answers do not depend on.
type About struct {
	Command   []string `json:"command"`
	ModelPath string   `json:"model_path"`
	ModelName string   `json:"model_name"`
	Device    string   `json:"device"`            // as it was asked for
	Devices   []string `json:"devices,omitempty"` // that computed, in their own words
	Version   string   `json:"version"`
	// Shared is the settings whose prompts were to be read once for all of a list.
	// How many did share is beside each answer's times.
	Shared [][]string `json:"shared_prefill"`
	// Parts is what the shards of a run that was merged say of themselves, by their
	// numbers. Command is then that of the merge.
	Parts []Part `json:"shards,omitempty"`
}

// Part is a shard of a run that was merged.
type Part struct {
	Shard Shard `json:"shard"`
	About About `json:"about"`
}

// Shard is part Index of Of of a run: the samples whose line leaves Index when
// divided by Of. The zero value and 0 of 1 are all of it.
type Shard struct {
	Index int `json:"index"`
	Of    int `json:"of"`
}

// ParseShard reads "2/8", which counts from 0.
func ParseShard(text string) (Shard, error) {
	if text == "" {
		return Shard{Of: 1}, nil
	}
	var s Shard
	if n, err := fmt.Sscanf(text, "%d/%d", &s.Index, &s.Of); n != 2 || err != nil || s.Of < 1 || s.Index < 0 || s.Index >= s.Of || fmt.Sprintf("%d/%d", s.Index, s.Of) != text {
		return s, fmt.Errorf("trial: shard %q, want i/n with i from 0 to n-1, such as 0/4", text)
	}
	return s, nil
}

// Has reports whether a sample is part of the shard.
func (s Shard) Has(line int) bool { return s.Of <= 1 || line%s.Of == s.Index }

// Size is how many of n samples are part of the shard.
func (s Shard) Size(n int) int {
	if s.Of <= 1 {
		return n
	}
	return (n - s.Index + s.Of - 1) / s.Of
}

// PromptsName is the folder, in that of a run, of the prompts that it made for itself.
const PromptsName = "prompts"

// The files of the manifest, and of the lock of who writes to a folder.
const (
	manifestName = "manifest.json"
	lockName     = "lock"
)

// Folder is the folder of a run.
type Folder struct {
	Path     string
	Manifest Manifest
	lock     *os.File
	fresh    bool // the manifest was not there before
}

// errUnderWay is the error of a lock that another process has.
var errUnderWay = errors.New("another run is under way in this folder; wait for it, or name another folder")

// Open opens the folder of a run, or makes it. A folder of another run, or one in
// which a run is under way, is refused.
func Open(path string, m Manifest) (*Folder, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, err
	}
	m.Hash = m.Identity.Hash()
	f := &Folder{Path: path, Manifest: m}
	var err error
	if err = InFolder(path, lockName, func(root *os.Root) (err error) {
		f.lock, err = lock(root, lockName)
		return err
	}); err != nil {
		if errors.Is(err, errUnderWay) {
			return nil, fmt.Errorf("trial: %s: %w", path, err)
		}
		return nil, fmt.Errorf("trial: %s is a folder that a run cannot write to: %w", path, err)
	}
	if err := f.claim(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// claim writes the manifest, or compares it with the one that is there.
func (f *Folder) claim() error {
	old, err := ReadManifest(f.Path)
	if errors.Is(err, os.ErrNotExist) {
		return f.settle()
	}
	if err != nil {
		return err
	}
	if files := changed(old.Identity, f); files != "" {
		return fmt.Errorf("trial: %s: %s was changed since this run made it, and its answers are to what it was; put it back as it was, or name another folder", f.Path, files)
	}
	if old.Hash != f.Manifest.Hash {
		return fmt.Errorf("trial: %s has the answers of another run: %s; name another folder, or run with what is in its %s",
			f.Path, differences(old.Identity, f.Manifest.Identity), manifestName)
	}
	if old.Shard != f.Manifest.Shard {
		return fmt.Errorf("trial: %s is shard %d of %d, not %d of %d; give each shard a folder of its own",
			f.Path, old.Shard.Index, old.Shard.Of, f.Manifest.Shard.Index, f.Manifest.Shard.Of)
	}
	return nil
}

// settle writes the manifest of a folder without one. Answers that are there are
// of nobody knows what.
func (f *Folder) settle() error {
	log, err := findAnswers(f.Path)
	if err != nil {
		return err
	}
	if log != "" {
		return fmt.Errorf("trial: %s has answers (%s) but no %s that says which run they are of; name another folder, or move them away",
			f.Path, log, manifestName)
	}
	f.fresh = true
	return writeFile(f.Path, manifestName, f.Manifest)
}

// Uses notes in the manifest which device computes.
func (f *Folder) Uses(device string) error {
	m, err := ReadManifest(f.Path)
	if err != nil || slices.Contains(m.About.Devices, device) {
		return err
	}
	m.About.Devices = append(m.About.Devices, device)
	return writeFile(f.Path, manifestName, m)
}

// Abandon gives a folder back that Open claimed and that got no answer, so that a
// run with other settings may have it. Call it before Close, after what stopped
// the run.
func (f *Folder) Abandon() error {
	if !f.fresh {
		return nil
	}
	if log, err := findAnswers(f.Path); err != nil || log != "" {
		return err
	}
	f.fresh = false
	return os.Remove(filepath.Join(f.Path, manifestName))
}

// settingFolder is what [SettingName] makes.
var settingFolder = regexp.MustCompile(`^[0-9]+-`)

// findAnswers is a file in the folder of a setting that has answers or readings,
// "" where there is none.
func findAnswers(path string) (found string, err error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if !settingFolder.MatchString(e.Name()) {
			continue
		}
		err = filepath.WalkDir(filepath.Join(path, e.Name()), func(name string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".jsonl" && d.Name() != AuditName {
				return err
			}
			info, err := d.Info()
			if err == nil && info.Size() > 0 {
				found, err = name, filepath.SkipAll
			}
			return err
		})
		if err != nil || found != "" {
			return found, err
		}
	}
	return "", nil
}

// Close lets others open the folder.
func (f *Folder) Close() error { return unlock(f.lock) }

// ReadManifest reads the manifest of a folder.
func ReadManifest(path string) (Manifest, error) {
	var m Manifest
	name := filepath.Join(path, manifestName)
	b, err := ReadFile(path, manifestName)
	if failed := new(os.PathError); errors.As(err, &failed) {
		err = fmt.Errorf("%s: %w", name, failed.Err) // not the call that failed, "statat"
	}
	if err != nil {
		return m, fmt.Errorf("trial: %s is not the folder of a run: %w", path, err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("trial: %s: %w", name, jsonError(b, err))
	}
	if m.Hash != m.Identity.Hash() {
		return m, fmt.Errorf("trial: %s was changed by hand: its hash is not that of its contents", name)
	}
	if err := m.check(); err != nil {
		return m, fmt.Errorf("trial: %s: %w; no run of gollm writes that", name, err)
	}
	return m, nil
}

// MaxRepeats is the most times that a setting answers a sample: each has files of its
// own, and the mean of a thousand is sure to a thirtieth of what one draw spreads.
const MaxRepeats = 1000

// maxUnits is more than the suites have: 13 tasks of RULER at a hundred lengths are 1,300.
const maxUnits = 10_000

// unitName is how the suites call a unit: LENGTH/pred/TASK.jsonl, pred/DATASET.jsonl,
// pred_e/DATASET.jsonl, results/MODEL.jsonl or LENGTH/niah.jsonl.
var unitName = regexp.MustCompile(`^([0-9]+/)?((pred|pred_e|results)/)?[^/\x00]{1,255}\.jsonl$`)

// check refuses a manifest that no run writes. Names in it become paths, and numbers
// say how much there is to read.
func (m *Manifest) check() error {
	if len(m.Identity.Settings) == 0 {
		return errors.New("no settings")
	}
	for _, n := range m.Identity.Repeats {
		if n < 0 || n > MaxRepeats {
			return fmt.Errorf("a setting is repeated %d times, want 0 to %d", n, MaxRepeats)
		}
	}
	if n := len(m.Units); n > maxUnits {
		return fmt.Errorf("%d units, want at most %d", n, maxUnits)
	}
	seen := map[string]bool{}
	for _, u := range m.Units {
		switch {
		case !unitName.MatchString(u.Name) || !filepath.IsLocal(filepath.FromSlash(u.Name)):
			return fmt.Errorf("a unit is called %q, want a name like 4096/pred/vt.jsonl", cut(u.Name))
		case seen[u.Name]:
			return fmt.Errorf("two units are called %q", cut(u.Name))
		case u.Count < 0 || u.Length < 0:
			return fmt.Errorf("%q has %d samples of length %d, want 0 or more", cut(u.Name), u.Count, u.Length)
		}
		seen[u.Name] = true
	}
	for name, file := range m.Made {
		if !strings.HasPrefix(file, PromptsName+"/") || !filepath.IsLocal(filepath.FromSlash(file)) {
			return fmt.Errorf("the prompts of %q are called %q, want the name of a file in %s", cut(name), cut(file), PromptsName)
		}
	}
	return nil
}

// jsonError says where JSON is wrong.
func jsonError(b []byte, err error) error {
	syntax := new(json.SyntaxError)
	if errors.As(err, &syntax) {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(b[:min(int(syntax.Offset), len(b))], []byte("\n")), err)
	}
	return err
}

// changed is the files that a run made and that are not what they were, where
// nothing else is different; else "".
func changed(old Identity, f *Folder) string {
	var files []string
	m := f.Manifest
	was := maps.Clone(m.Identity.Data)
	for name, hash := range m.Identity.Data {
		file, made := m.Made[name]
		if before, ok := old.Data[name]; ok && made && before != hash {
			files = append(files, filepath.Join(f.Path, filepath.FromSlash(file)))
			was[name] = before
		}
	}
	if m.Identity.Data = was; m.Identity.Hash() != old.Hash() {
		return ""
	}
	slices.Sort(files)
	return strings.Join(files, ", ")
}

// differences names the fields in which two runs differ.
func differences(a, b Identity) string {
	was, is := a.fields(), b.fields()
	var list []string
	for name := range is {
		switch _, ok := was[name]; {
		case !ok:
			list = append(list, name+" is "+shorten(is[name])+" and was not there")
		case !bytes.Equal(was[name], is[name]):
			list = append(list, fmt.Sprintf("%s was %s and is %s", name, shorten(was[name]), shorten(is[name])))
		}
	}
	for name := range was {
		if _, ok := is[name]; !ok {
			list = append(list, name+" was "+shorten(was[name])+" and is not there")
		}
	}
	slices.Sort(list)
	if more := len(list) - maxDifferences; more > 0 {
		list = append(list[:maxDifferences], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// maxDifferences is how many an error names.
const maxDifferences = 6

// fields is the identity by field; what has names of its own, by those too.
func (i Identity) fields() map[string]json.RawMessage {
	raw, _ := json.Marshal(i) // as in Hash
	var all, part map[string]json.RawMessage
	_ = json.Unmarshal(raw, &all)
	for _, name := range []string{"options", "data_sha256"} {
		part = nil
		_ = json.Unmarshal(all[name], &part)
		delete(all, name)
		for key, value := range part {
			all[name+" "+key] = value
		}
	}
	return all
}

// shorten cuts a value of the manifest to what fits into an error.
func shorten(raw json.RawMessage) string { return cut(string(raw)) }

// cut cuts a text to what fits into an error.
func cut(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// SettingName is the folder of setting number i: its number and its attention
// without what file systems object to.
func SettingName(i int, attn string) string {
	safe := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-':
			return c
		}
		return '_'
	}, attn)
	return fmt.Sprintf("%d-%s", i, strings.Trim(safe[:min(len(safe), 60)], "_."))
}

// LogName is where in the folder of a run the answers to a unit under a setting are;
// repeat counts the times that a setting answers, from 0 on.
func LogName(setting int, attn string, repeat int, unit string) string {
	dir := SettingName(setting, attn)
	if repeat > 0 {
		dir = filepath.Join(dir, fmt.Sprintf("repeat-%d", repeat))
	}
	return filepath.Join(dir, filepath.FromSlash(unit))
}
