package device

// The calls of a transformer besides attention. Operands must not overlap unless a comment
// allows it.

// Embed is the embedding lookup, dequantized: Dst[r] = Table[IDs[r]].
type Embed struct {
	Dst   Tensor // f32 [rows, dim]
	Table Tensor // any type [vocab, dim]
	IDs   Tensor // i32 [rows]
}

// Check panics unless the operands fit together.
func (c *Embed) Check() {
	const op = "Embed"
	checkWeight(op, "table", c.Table)
	CheckShape(op, "ids", c.IDs, I32, -1)
	CheckShape(op, "dst", c.Dst, F32, c.IDs.Dim(0), c.Table.Dim(1))
}

// Access names what is read and written.
func (c *Embed) Access(a *Access) { a.Read(c.Table, c.IDs); a.Write(c.Dst) }

// Cost is the rows of the table that are looked up, and Dst.
func (c *Embed) Cost(Stored) Cost {
	cost := moved(c.Dst, c.IDs)
	cost.Bytes += int64(c.IDs.Dim(0)) * int64(c.Table.DType.RowSize(c.Table.Dim(1)))
	return cost
}

var kindEmbed = register[Embed]()

func (*Embed) kind() kind { return kindEmbed }

// Gather copies rows: Dst[r] = Src[Rows[r]].
type Gather struct {
	Dst, Src Tensor // f32 [·, dim]
	Rows     Tensor // i32 [rows]
}

// Check panics unless the operands fit together.
func (c *Gather) Check() {
	const op = "Gather"
	CheckShape(op, "src", c.Src, F32, -1, -1)
	CheckShape(op, "rows", c.Rows, I32, -1)
	CheckShape(op, "dst", c.Dst, F32, c.Rows.Dim(0), c.Src.Dim(1))
}

// Access names what is read and written.
func (c *Gather) Access(a *Access) { a.Read(c.Src, c.Rows); a.Write(c.Dst) }

// Cost is the rows, read and written.
func (c *Gather) Cost(Stored) Cost { return moved(c.Dst, c.Dst, c.Rows) }

var kindGather = register[Gather]()

func (*Gather) kind() kind { return kindGather }

// Copy copies all elements between tensors of one type and length.
type Copy struct {
	Dst, Src Tensor // any type
}

// Check panics unless the operands fit together.
func (c *Copy) Check() {
	if c.Dst.DType != c.Src.DType || c.Dst.Len() != c.Src.Len() {
		Check(false, "Copy", "dst %v, want the type and length of src %v", c.Dst, c.Src)
	}
}

// Access names what is read and written.
func (c *Copy) Access(a *Access) { a.Read(c.Src); a.Write(c.Dst) }

// Cost is the elements, read and written.
func (c *Copy) Cost(Stored) Cost { return moved(c.Dst, c.Src) }

var kindCopy = register[Copy]()

func (*Copy) kind() kind { return kindCopy }

// Add is an addition in place, Dst += X: the residual connection, element by element, or a bias,
// which is added to each row of Dst.
type Add struct {
	Dst Tensor // f32 [rows, dim], or of any shape where X has the same
	X   Tensor // f32, Dst's shape or [dim]
}

// Row reports whether X is a bias.
func (c *Add) Row() bool { return c.X.rank == 1 && c.Dst.rank == 2 }

// Check panics unless the operands fit together.
func (c *Add) Check() {
	const op = "Add"
	if c.X.DType != F32 {
		Check(false, op, "x %v, want F32", c.X)
	}
	if c.Row() {
		CheckShape(op, "dst", c.Dst, F32, -1, c.X.Dim(0))
		return
	}
	CheckLike(op, "dst", c.Dst, c.X)
}

// Access names what is read and written.
func (c *Add) Access(a *Access) { a.Read(c.Dst, c.X); a.Write(c.Dst) }

// Cost is Dst twice and X.
func (c *Add) Cost(Stored) Cost {
	cost := moved(c.Dst, c.Dst, c.X)
	cost.Ops = int64(c.Dst.Len())
	return cost
}

var kindAdd = register[Add]()

func (*Add) kind() kind { return kindAdd }

// RMSNorm normalizes each row: Dst = X / √(mean(X²) + Eps) · W.
type RMSNorm struct {
	Dst, X Tensor  // f32 [rows, dim]; Dst may be X
	W      Tensor  // f32 [dim]
	Eps    float32 // added to the mean square
}

// Check panics unless the operands fit together.
func (c *RMSNorm) Check() {
	const op = "RMSNorm"
	CheckShape(op, "x", c.X, F32, -1, -1)
	CheckShape(op, "w", c.W, F32, c.X.Dim(1))
	CheckShape(op, "dst", c.Dst, F32, c.X.Dim(0), c.X.Dim(1))
}

// Access names what is read and written.
func (c *RMSNorm) Access(a *Access) { a.Read(c.X, c.W); a.Write(c.Dst) }

// Cost is the rows, read and written, and W.
func (c *RMSNorm) Cost(Stored) Cost {
	cost := moved(c.Dst, c.X, c.W)
	cost.Ops = 4 * int64(c.X.Len())
	return cost
}

var kindRMSNorm = register[RMSNorm]()

func (*RMSNorm) kind() kind { return kindRMSNorm }

// Rotation is the parameters of rotary position embedding.
type Rotation struct {
	Freqs Tensor  // f32 [pairs]: radians per position, context extension applied
	Scale float32 // of the result (YaRN's attention factor); 1 is none
	// Interleaved pairs elements (2i, 2i+1), GGUF's Llama layout; otherwise (i, i+pairs),
	// NeoX's.
	Interleaved bool
}

// Rope rotates pair i of each head in place by the angle Pos·Freqs[i]. Elements of a head after
// the last pair are left alone.
type Rope struct {
	X   Tensor // f32 [rows, heads, dim]
	Pos Tensor // i32 [rows]
	Rotation
}

// Check panics unless the operands fit together.
func (c *Rope) Check() {
	const op = "Rope"
	CheckShape(op, "x", c.X, F32, -1, -1, -1)
	CheckShape(op, "pos", c.Pos, I32, c.X.Dim(0))
	CheckShape(op, "freqs", c.Freqs, F32, -1)
	if pairs, dim := c.Freqs.Dim(0), c.X.Dim(2); 2*pairs > dim {
		Check(false, op, "%d pairs, want no more than half of dim %d", pairs, dim)
	}
}

// Access names what is read and written.
func (c *Rope) Access(a *Access) { a.Read(c.X, c.Pos, c.Freqs); a.Write(c.X) }

// Cost is X, read and written.
func (c *Rope) Cost(Stored) Cost {
	cost := moved(c.X, c.X, c.Pos, c.Freqs)
	cost.Ops = 3 * int64(c.X.Len())
	return cost
}

var kindRope = register[Rope]()

func (*Rope) kind() kind { return kindRope }

// SwiGLU is the gated activation Dst = silu(Gate) · Up, silu(g) = g / (1 + exp(-g)).
type SwiGLU struct {
	Dst, Gate, Up Tensor // f32 [rows, dim]; Dst may be Gate
}

// Check panics unless the operands fit together.
func (c *SwiGLU) Check() {
	const op = "SwiGLU"
	CheckShape(op, "gate", c.Gate, F32, -1, -1)
	CheckLike(op, "up", c.Up, c.Gate)
	CheckLike(op, "dst", c.Dst, c.Gate)
}

// Access names what is read and written.
func (c *SwiGLU) Access(a *Access) { a.Read(c.Gate, c.Up); a.Write(c.Dst) }

// Cost is the three tensors.
func (c *SwiGLU) Cost(Stored) Cost {
	cost := moved(c.Dst, c.Gate, c.Up)
	cost.Ops = 4 * int64(c.Dst.Len())
	return cost
}

var kindSwiGLU = register[SwiGLU]()

func (*SwiGLU) kind() kind { return kindSwiGLU }

// MatMul is a linear layer: Dst = X·Wᵀ. The backend decides how X is quantized for a quantized W;
// device/devtest has the error bounds.
type MatMul struct {
	Dst Tensor // f32 [rows, n]
	X   Tensor // f32 [rows, k]
	W   Tensor // any type [n, k]
}

// Check panics unless the operands fit together.
func (c *MatMul) Check() {
	const op = "MatMul"
	checkWeight(op, "w", c.W)
	n, k := c.W.Dim(0), c.W.Dim(1)
	CheckShape(op, "x", c.X, F32, -1, k)
	CheckShape(op, "dst", c.Dst, F32, c.X.Dim(0), n)
}

// Access names what is read and written.
func (c *MatMul) Access(a *Access) { a.Read(c.X, c.W); a.Write(c.Dst) }

// Cost is the three tensors, and two operations per weight and row.
func (c *MatMul) Cost(Stored) Cost {
	cost := moved(c.Dst, c.X, c.W)
	cost.Ops = 2 * int64(c.W.Len()) * int64(c.X.Dim(0))
	if c.W.DType.Quantized() {
		cost.Int8 = cost.Ops
	}
	return cost
}

var kindMatMul = register[MatMul]()

func (*MatMul) kind() kind { return kindMatMul }
