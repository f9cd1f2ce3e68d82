package device

import "github.com/gollm/gollm/device/sampling"

// SampleTokens chooses the token that follows each row, and writes it into the row's history.
type SampleTokens struct {
	Next   Tensor // i32 [rows]
	Logits Tensor // f32 [rows, vocab]; may be overwritten
	// History is a ring of the newest tokens, i32 [rows, window]: that of position p at
	// p mod window, -1 where there is none. The chosen token is written at Pos+1.
	History Tensor
	Pos     Tensor            // i32 [rows]: the rows' positions, which address the randomness
	Params  []sampling.Params // of each row
}

// Check panics unless the operands fit together.
func (c *SampleTokens) Check() {
	const op = "SampleTokens"
	CheckShape(op, "logits", c.Logits, F32, -1, -1)
	rows := c.Logits.Dim(0)
	CheckShape(op, "next", c.Next, I32, rows)
	CheckShape(op, "history", c.History, I32, rows, -1)
	CheckShape(op, "pos", c.Pos, I32, rows)
	if c.Logits.Dim(1) == 0 {
		Check(false, op, "logits %v, want a token to choose", c.Logits)
	}
	if len(c.Params) != rows {
		Check(false, op, "%d settings, want %d, one of each row", len(c.Params), rows)
	}
}

// Access names what is read and written.
func (c *SampleTokens) Access(a *Access) {
	a.Read(c.Logits, c.History, c.Pos)
	a.Write(c.Next, c.Logits, c.History)
}

// Cost is the logits once.
func (c *SampleTokens) Cost(Stored) Cost { return moved(c.Logits, c.Next, c.History, c.Pos) }

func (*SampleTokens) kind() kind { return kindSampleTokens }
