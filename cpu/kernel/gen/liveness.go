package main

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

// Avo thinks that a write to an XMM or YMM register keeps the bits above it,
// and that VPXORD of a register with itself reads it. Neither is so for the
// instructions used here, which all have a VEX or EVEX prefix; left alone,
// such registers would count as live from the start of the function.
func init() {
	pass.Compile = pass.Concat(pass.InstructionPass(vectorWrites), pass.Compile)
}

func vectorWrites(i *ir.Instruction) error {
	for n, op := range i.Outputs {
		if v, ok := op.(reg.Vec); ok {
			i.Outputs[n] = v.AsZ()
		}
	}
	if i.Opcode == "VPXORD" || i.Opcode == "VPXOR" {
		i.CancellingInputs = true
	}
	return nil
}
