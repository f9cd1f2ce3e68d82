package device

// MaskTokens sets the logits of tokens that are not allowed to -Inf, in front of SampleTokens:
// structured output.
type MaskTokens struct {
	Logits Tensor // f32 [rows, vocab], in place
	// Allowed has a bit for each token, i32 [rows, (vocab+31)/32]: bit id%32 of word id/32, from
	// the lowest. A row of -1 allows everything.
	Allowed Tensor
}

// Check panics unless the operands fit together.
func (c *MaskTokens) Check() {
	const op = "MaskTokens"
	CheckShape(op, "logits", c.Logits, F32, -1, -1)
	CheckShape(op, "allowed", c.Allowed, I32, c.Logits.Dim(0), (c.Logits.Dim(1)+31)/32)
}

// Access names what is read and written.
func (c *MaskTokens) Access(a *Access) {
	a.Read(c.Logits, c.Allowed)
	a.Write(c.Logits)
}

// Cost is the mask: logits that are allowed are not touched.
func (c *MaskTokens) Cost(Stored) Cost { return moved(c.Allowed) }

var kindMaskTokens = register[MaskTokens]()

func (*MaskTokens) kind() kind { return kindMaskTokens }
