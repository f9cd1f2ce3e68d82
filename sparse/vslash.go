package sparse

import (
	"errors"

	"github.com/gollm/gollm/device"
)

// The vertical-slash pattern of MInference 1.0: Accelerating Pre-filling for
// Long-Context LLMs via Dynamic Sparse Attention (Jiang et al., 2024). Per query head of
// a prompt, with A the causal softmax of its last 64 rows over all keys:
//
//  1. Score the columns and the diagonals of A:
//
//     vertical_j = Σ_p A_p,j        slash_o = Σ_p A_p,p-o
//
//  2. Select the V columns and the S diagonals with the largest sums, V at least 30 and
//     S at least 50. Columns 0 to 29 and diagonals 0 to 99 rank before all others.
//
//  3. Every block of 64 rows reads the selected columns and the positions under the
//     selected diagonals: of each diagonal the 64 positions from its start in the block
//     on. Overlapping ranges are merged in tiles of 64, so that a row reads slightly
//     more than the pattern, and always its own block.
//
// The pattern depends on the last rows of the prompt, so a prompt is prefilled in one
// pass. pattern=per_chunk finds it by the last rows of each chunk instead, which is
// another method.
//
// Differences from the authors' code:
//   - V and S are the same for all heads, the code's defaults. Its per-model files of
//     searched V and S, and of the two other patterns that they name, are not read.
//   - A prompt behind a cached prefix uses the last of its new rows, fewer than 64 if
//     there are fewer.

// vslashOptions are the options of vslash.
type vslashOptions struct {
	Vertical int    `opt:"vertical" unit:"positions" doc:"columns that every row reads, at least 30"`
	Slash    int    `opt:"slash" unit:"diagonals" doc:"distances at which every row reads, at least 50"`
	Pattern  string `opt:"pattern" oneof:"whole per_chunk" doc:"by the last rows of the whole prompt, in one pass, or of each chunk"`
}

// The constants of the pattern.
const (
	vslashRows                     = 64 // last rows that score it, and rows of a block
	minColumns, minDiagonals       = 30, 50
	forcedColumns, forcedDiagonals = 30, 100
	vslashTile                     = 4 * vslashRows // maximum rows of a tile
)

func (o vslashOptions) check() error {
	return errors.Join(atLeast("vertical", o.Vertical, 0), atLeast("slash", o.Slash, 0))
}

// reach: the last rows of a pass say what all of them read.
func (o vslashOptions) reach() (unit int, end bool) { return wholeChunk, true }

// whole reports whether a prompt must be prefilled in one pass.
func (o vslashOptions) whole() bool { return o.Pattern == "whole" }

var vslashEntry = entry(Doc{
	Name: "vslash", Title: "columns and diagonals that the end of the prompt attends to",
	Source: "Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse Attention, 2024; vertical-slash",
	Stage:  Select, Prefill: true, Observes: true,
	Granularity: "positions, per query head and block of 64 rows",
	Reads:       "the columns, and 64 positions for each diagonal where they do not overlap; to select, the last 64 rows read all of K",
	Presets:     map[string]string{"paper": "vertical=1000,slash=6096"},
}, vslashOptions{Vertical: 1000, Slash: 6096, Pattern: "whole"}, newVslash)

// vslash is the scratch: the pattern of a layer and the lists of a tile.
type vslash struct {
	vslashOptions
	columns, diagonals         device.Tensor // f32 [heads, maxlen]: scores
	columnsList, diagonalsList device.List   // [1, heads, maxlen]
	list                       device.List   // [blocks of rows, heads, positions]
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

// Cut ends tiles at multiples of vslashTile.
func (*vslash) Cut(p *Pass, row int) int { return vslashTile - (p.First+row)%vslashTile }

// Observe selects the columns and diagonals of a layer (steps 1 and 2).
func (v *vslash) Observe(p *Pass, layer int, q, _ device.Tensor) {
	if p.Decode {
		return
	}
	kv, n := p.KV(layer), p.Rows()
	device.Do(p.Queue, device.Score{
		Rule: device.VerticalSlash, Dst: v.columns, Diagonals: v.diagonals, Q: q.Rows(max(n-vslashRows, 0), n), KV: kv,
		ForcedColumns: forcedColumns, ForcedDiagonals: forcedDiagonals,
	})
	device.Do(p.Queue, device.Select{
		Rule: device.TopK, List: v.columnsList, Scores: asRow(v.columns), KV: kv,
		K: device.Amount{Count: max(v.Vertical, minColumns)},
	})
	device.Do(p.Queue, device.Select{
		Rule: device.TopK, List: v.diagonalsList, Scores: asRow(v.diagonals), KV: kv,
		K: device.Amount{Count: max(v.Slash, minDiagonals)},
	})
}

// asRow is scores [heads, width] as those of one row.
func asRow(x device.Tensor) device.Tensor { return x.Reshape(1, x.Dim(0), x.Dim(1)) }

// Prefill lists the positions that the blocks of a tile read (step 3).
func (v *vslash) Prefill(p *Pass, layer int, _ device.Tensor, plan device.Plan) device.Plan {
	plan.Sink, plan.Recent, plan.Align = 0, 0, 0
	plan.Selected, plan.List = device.Tokens, v.list
	device.Do(p.Queue, device.Select{
		Rule: device.ExpandLines, List: plan.List, Columns: v.columnsList, Diagonals: v.diagonalsList, KV: p.KV(layer), Rows: p.Rows(),
	})
	return plan
}
