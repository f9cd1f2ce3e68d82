package device

import "github.com/gollm/gollm/device/sampling"

// SampleTokens samples the next token of each row and writes it into the row's history.
type SampleTokens struct {
	Next   Tensor // i32 [rows]
	Logits Tensor // f32 [rows, vocab]; may be overwritten
	// History is a ring buffer of the newest tokens, i32 [rows, window]: the token at position
	// p is at p mod window, -1 is none. The sampled token is stored for position Pos+1.
	History Tensor
	Pos     Tensor            // i32 [rows]: positions, which address the random numbers
	Params  []sampling.Params // one for each row
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
		Check(false, op, "logits %v, want a vocabulary", c.Logits)
	}
	if len(c.Params) != rows {
		Check(false, op, "%d sampling parameters, want %d, one for each row", len(c.Params), rows)
	}
}

// Access names what is read and written.
func (c *SampleTokens) Access(a *Access) {
	a.Read(c.Logits, c.History, c.Pos)
	a.Write(c.Next, c.Logits, c.History)
}

// Cost is the logits, once.
func (c *SampleTokens) Cost(Stored) Cost { return moved(c.Logits, c.Next, c.History, c.Pos) }

var kindSampleTokens = register[SampleTokens]()

func (*SampleTokens) kind() kind { return kindSampleTokens }
