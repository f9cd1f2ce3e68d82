package sparse

// Stage is a method's place in the order of stages; see the package comment.
type Stage int

// The stages.
const (
	Rows Stage = iota + 1
	Window
	Select
	Sample
	Value
)

// String is the stage's name.
func (s Stage) String() string {
	return [...]string{"none", "rows", "window", "select", "sample", "value"}[s]
}

// Doc is what `gollm attn NAME` prints of a method.
type Doc struct {
	Name        string
	Title       string // one line
	Source      string // paper and what of it
	Stage       Stage
	Prefill     bool // plans prefill passes
	Decode      bool // plans decode steps
	Whole       bool // cannot work on chunks of a prompt
	Observes    bool // is an Observer: must see every row of a prompt in every layer
	Stored      bool // an Observer of stored keys only: rows of a prompt may be skipped
	Draws       bool // samples at random: another seed is another selection
	Forgets     bool // evicts: a position that is not selected is never read again
	Carries     bool // keeps state of a prompt in its sequence: pages alone do not continue it
	Granularity string
	Reads       string            // cost: traffic of K and V, and of selection
	Presets     map[string]string // name → options, as in "density=0.2,exponent=8"
}

// Entry is one line of the table of methods.
type Entry struct {
	Doc
	defaults any
	build    func(opts any, env *Env) ([]Method, error)
	parts    func(opts any) []item // of a combination: the methods that it stands for
}

// Options lists the options with their defaults.
func (e *Entry) Options() []Option { return describe(e.defaults) }

// entry makes a table line from typed options.
func entry[T any](d Doc, defaults T, build func(T, *Env) (Method, error)) Entry {
	return Entry{Doc: d, defaults: defaults, build: func(opts any, env *Env) ([]Method, error) {
		m, err := build(opts.(T), env)
		return []Method{m}, err
	}}
}

// combination makes a table line that stands for several others. parts gives
// each with its options; it is used in the phases that the text asks for and that its
// own entry supports.
func combination[T any](d Doc, defaults T, parts func(T) []item) Entry {
	return Entry{Doc: d, defaults: defaults, parts: func(opts any) []item { return parts(opts.(T)) }}
}

// table is every method, in the order in which they are listed.
var table = []Entry{
	denseEntry,
	streamingEntry,
	topkEntry,
	toppEntry,
	questEntry,
	vslashEntry,
	flexprefillEntry,
	sketchwalkEntry,
	cisEntry,
	psawEntry,
	etfEntry,
	cpeEntry,
	vattentionEntry,
	anchorEntry,
	santaEntry,
	h2oEntry,
	magicpigEntry,
	doublesparsityEntry,
	hashattentionEntry,
	randomEntry,
}

// Methods lists the methods.
func Methods() []Entry { return table }

// find is the entry of that name, nil if there is none.
func find(name string) *Entry {
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return nil
}
