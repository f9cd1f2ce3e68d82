package main

// The layouts of the Go structs that the loops read and write; kernel checks
// them at compile time.

// actBlock: 256 activations of a token.
const (
	actQ     = 0   // u8 [256], integer + 128
	actScale = 256 // f32 [8]
	actDsum  = 288 // f32 [8], scale·sum
	actSum16 = 320 // i16 [16]
	actSum32 = 352 // i16 [8]
	actSize  = 384
)

// block: 256 weights of a row.
const (
	blockW     = 0   // i8 [256]
	blockScale = 256 // i8 [16]
	blockMin   = 272 // u8 [16]
	blockD     = 288 // f32 d, f32 dmin
	blockBD    = 320 // f32 [8], blocks of 32
	blockBM    = 352 // f32 [8], blocks of 32
	blockSize  = 384
)

// panel: 256 weights of 32 rows, rows side by side.
const (
	panelW     = 0     // i8 [64][32][4]
	panelInit  = 8192  // i32 [16][32], −128·Σw of a group
	panelScale = 10240 // f32 [16][32]
	panelMin   = 12288 // i16 [8][32][2] mins of two groups, or f32 [8][32]
	panelD     = 13312 // f32 [32]
	panelDmin  = 13440 // f32 [32]
	panelLow   = 13568 // i8 [64][32][4], AVX2: low halves of split weights
	panelRow   = 128   // bytes of 32 lanes
)
