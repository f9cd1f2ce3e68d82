package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// Loops without memory traffic or without arithmetic, whose speed is the limit
// of the others. An iteration of peakVNNI and peakFMA is 24 independent
// instructions; an iteration of peakRead reads 512 bytes.
func peak() {
	chains("peakVNNI", func(a, x, y Op) { VPDPBUSD(x, y, a) })
	chains("peakFMA", func(a, x, y Op) { VFMADD231PS(x, y, a) })
	peakRead()
}

func chains(name string, step func(a, x, y Op)) {
	function(name, "func(turns int)", "runs 24 chains of the instruction.")
	n := Load(Param("turns"), GP64())
	x, y := ZMM(), ZMM()
	VPXORD(x, x, x)
	VPXORD(y, y, y)
	var acc []Op
	for range 24 {
		a := ZMM()
		VPXORD(a, a, a)
		acc = append(acc, a)
	}
	Label("turn")
	for _, a := range acc {
		step(a, x, y)
	}
	DECQ(n)
	JNZ(LabelRef("turn"))
	VZEROUPPER()
	RET()
}

func peakRead() {
	function("peakRead", "func(data *byte, turns int)", "reads turns times 512 bytes.")
	data := Load(Param("data"), GP64())
	n := Load(Param("turns"), GP64())
	acc := ZMM()
	VPXORD(acc, acc, acc)
	Label("turn")
	for i := range 8 {
		PREFETCHT0(Mem{Base: data, Disp: 4096 + 64*i})
		VPORD(Mem{Base: data, Disp: 64 * i}, acc, acc)
	}
	ADDQ(U32(512), data)
	DECQ(n)
	JNZ(LabelRef("turn"))
	VZEROUPPER()
	RET()
}
