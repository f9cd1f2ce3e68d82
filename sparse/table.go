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

// Doc is what `gollm attn NAME` prints of a system.
type Doc struct {
	Name        string
	Title       string // one line
	Source      string // paper and what of it
	Stage       Stage
	Prefill     bool // plans prefill passes
	Decode      bool // plans decode steps
	Whole       bool // cannot work on chunks of a prompt
	Observes    bool // is an Observer: must see every row of a prompt in every layer
	Stored      bool // of these sees stored keys only: rows may be left out of a prompt
	Draws       bool // draws at random: another seed is another choice
	Forgets     bool // what it does not select is gone for good
	Granularity string
	Reads       string            // cost: what is read of K and V, and what selection costs
	Presets     map[string]string // name → settings, as in "density=0.2,exponent=8"
}

// Entry is one line of the table of systems.
type Entry struct {
	Doc
	defaults any
	build    func(opts any, env *Env) ([]Method, error)
	parts    func(opts any) []item // of a combination: the systems that it stands for
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
// each with its options; it works in the phases that the text asks for and its
// own entry knows.
func combination[T any](d Doc, defaults T, parts func(T) []item) Entry {
	return Entry{Doc: d, defaults: defaults, parts: func(opts any) []item { return parts(opts.(T)) }}
}

// table is every attention system, in the order in which it is listed.
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

// Methods lists the systems.
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
