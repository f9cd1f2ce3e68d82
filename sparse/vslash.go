package sparse

import (
	"errors"

	"github.com/gollm/gollm/device"
)

// The vertical-slash pattern of MInference (Jiang et al., MInference 1.0:
// Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse Attention,
// 2024). Per query head, with A the causal softmax of the last 64 rows of a prompt
// over all keys:
//
//	vertical_j = Σ_p A_pj    the first 30 are chosen before all others
//	slash_o = Σ_p A_p,p-o    the first 100 are
//
// Rows read the columns with the V largest sums and the diagonals with the S
// largest, V at least 30 and S at least 50. They are computed for blocks of 64
// rows: a diagonal becomes the 64 positions from its start for the block on, and
// what overlaps is laid out in tiles of 64, so that a row reads some more than
// the pattern, and every block itself.
//
// The pattern needs the last rows of the prompt before its first row is
// computed: a prompt is one pass. pattern=per_chunk takes the last rows of each
// chunk instead, which is another method.
//
// Differences from the authors' code: V and S are the same for all heads, their
// defaults; the files of V and S that were searched for some models, and the
// other two kinds of pattern that they name, are not read. A prompt that goes on
// after a cached beginning uses the last of its new rows, fewer if there are
// fewer.

// vslashOptions are the settings of vslash.
type vslashOptions struct {
	Vertical int    `opt:"vertical" unit:"positions" doc:"columns that every row reads, at least 30"`
	Slash    int    `opt:"slash" unit:"diagonals" doc:"distances at which every row reads, at least 50"`
	Pattern  string `opt:"pattern" oneof:"whole per_chunk" doc:"by the last rows of the whole prompt, in one pass, or of each chunk"`
}

// What the pattern has in any case, and what it is found by.
const (
	vslashRows                     = 64 // newest rows, and rows of a block
	minColumns, minDiagonals       = 30, 50
	forcedColumns, forcedDiagonals = 30, 100
	vslashTile                     = 4 * vslashRows // rows planned at once
)

func (o vslashOptions) check() error {
	return errors.Join(atLeast("vertical", o.Vertical, 0), atLeast("slash", o.Slash, 0))
}

// whole reports whether the prompt must be one pass.
func (o vslashOptions) whole() bool { return o.Pattern == "whole" }

var vslashEntry = entry(Doc{
	Name: "vslash", Title: "columns and diagonals that the end of the prompt attends to",
	Source: "Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse Attention, 2024; vertical-slash",
	Stage:  Select, Prefill: true, Observes: true,
	Granularity: "positions, per query head and block of 64 rows",
	Reads:       "the columns, and 64 positions for each diagonal where they do not overlap; to choose, the last 64 rows read all of K",
	Presets:     map[string]string{"paper": "vertical=1000,slash=6096"},
}, vslashOptions{Vertical: 1000, Slash: 6096, Pattern: "whole"}, newVslash)

// vslash holds the pattern of a layer and the lists of a tile of rows.
type vslash struct {
	vslashOptions
	columns, diagonals         device.Tensor // f32 [heads, maxlen]
	columnsList, diagonalsList device.List   // one group, all heads
	list                       device.List   // a group for each block of rows, all heads
}

func newVslash(o vslashOptions, env *Env) (Method, error) {
	v := &vslash{
		vslashOptions: o,
		columns:       env.Scratch(device.F32, env.Heads, env.MaxLen),
		diagonals:     env.Scratch(device.F32, env.Heads, env.MaxLen),
		columnsList:   env.List(1, env.Heads, env.MaxLen, false),
		diagonalsList: env.List(1, env.Heads, env.MaxLen, false),
		list:          env.List(vslashTile/vslashRows, env.Heads, env.MaxLen, false),
	}
	v.list.Group = vslashRows
	return v, nil
}

// Name is "vslash".
func (*vslash) Name() string { return "vslash" }

// Cut ends at multiples of what is planned at once.
func (*vslash) Cut(p *Pass, row int) int { return vslashTile - (p.First+row)%vslashTile }

// Observe finds the pattern of a prompt's layer.
func (v *vslash) Observe(p *Pass, layer int, q, _ device.Tensor) {
	if p.Decode {
		return
	}
	kv, n := p.KV(layer), p.Rows()
	device.Do(p.Queue, device.Score{Rule: device.VerticalSlash, Dst: v.columns, Diagonals: v.diagonals, Q: q.Rows(max(n-vslashRows, 0), n), KV: kv, ForcedColumns: forcedColumns, ForcedDiagonals: forcedDiagonals})
	device.Do(p.Queue, device.Select{Rule: device.TopK, List: v.columnsList, Scores: asRow(v.columns), KV: kv, K: device.Amount{Count: max(v.Vertical, minColumns)}})
	device.Do(p.Queue, device.Select{Rule: device.TopK, List: v.diagonalsList, Scores: asRow(v.diagonals), KV: kv, K: device.Amount{Count: max(v.Slash, minDiagonals)}})
}

// asRow is scores [heads, width] as those of one row.
func asRow(x device.Tensor) device.Tensor { return x.Reshape(1, x.Dim(0), x.Dim(1)) }

// Prefill lists what the pattern reaches from the blocks of a tile.
func (v *vslash) Prefill(p *Pass, layer int, _ device.Tensor, plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Align = 0, 0, 0
	plan.Selected, plan.List = device.Tokens, v.list
	device.Do(p.Queue, device.Select{Rule: device.ExpandLines, List: plan.List, Columns: v.columnsList, Diagonals: v.diagonalsList, KV: p.KV(layer), Rows: p.Rows()})
	return plan
}
