// Command vec writes the vector kernels of package vec with avo: run
// "go generate" there. Each file holds one family and opens with its formula
// and its registers. Most kernels are written once for both widths of register.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// machine is what differs between instruction sets.
type machine struct {
	suffix string // of every function
	lanes  int    // f32 in a register
	wide   bool   // AVX-512: 32 registers of 16 lanes
}

// reg is a fresh vector register.
func (m machine) reg() VecVirtual {
	if m.wide {
		return ZMM()
	}
	return YMM()
}

// regs is n fresh vector registers.
func (m machine) regs(n int) []VecVirtual {
	all := make([]VecVirtual, n)
	for i := range all {
		all[i] = m.reg()
	}
	return all
}

// bytes is the width of a register.
func (m machine) bytes() int { return 4 * m.lanes }

// zero clears a register.
func (m machine) zero(r VecVirtual) {
	if m.wide {
		VPXORD(r, r, r)
		return
	}
	VXORPS(r, r, r)
}

// lower is the half of r that holds as many f16 as r holds f32.
func (m machine) lower(r VecVirtual) Op {
	if m.wide {
		return r.AsY()
	}
	return r.AsX()
}

// constant is a register full of v, or as much memory where registers are few.
func (m machine) constant(v float32) Op {
	b := math.Float32bits(v)
	return m.full(fmt.Sprintf("f32_%08x", b), U32(b), VBROADCASTSS)
}

// numbers are those that the file holds, by name.
var numbers = map[string]Mem{}

// full is a register full of a number, by a broadcast of it, or as much memory where registers are few.
func (m machine) full(name string, number Constant, broadcast func(...Op)) Op {
	at, ok := numbers[name]
	if !ok {
		at = GLOBL(name+m.suffix, attr.RODATA|attr.NOPTR)
		for i := 0; i < 32; i += number.Bytes() {
			DATA(i, number)
		}
		numbers[name] = at
	}
	if !m.wide {
		return at
	}
	r := m.reg()
	broadcast(at, r)
	return r
}

// load is a constant in a register.
func (m machine) load(c Op) VecVirtual {
	if r, ok := c.(VecVirtual); ok {
		return r
	}
	r := m.reg()
	VMOVUPS(c, r)
	return r
}

// function begins a kernel.
func (m machine) function(name, signature, doc string) {
	TEXT(name+m.suffix, attr.NOSPLIT, signature)
	Pragma("noescape")
	Doc(name + m.suffix + " " + doc)
}

// end returns. The Go compiler's own float code is slow after wide registers
// have been used unless their upper halves are cleared.
func end() {
	VZEROUPPER()
	RET()
}

// labels counts the labels that have been given out.
var labels int

// label is a label of its own.
func label(stem string) string {
	labels++
	return fmt.Sprintf("%s%d", stem, labels)
}

// loop runs body n times, n a register that it counts down; n may be zero.
func loop(n Register, body func()) {
	begin, end := label("loop"), label("end")
	TESTQ(n, n)
	JZ(LabelRef(end))
	Label(begin)
	body()
	DECQ(n)
	JNZ(LabelRef(begin))
	Label(end)
}

func main() {
	isa := flag.String("isa", "", "avx512 or avx2")
	flag.Parse() // and avo's own -out, -stubs and -pkg
	machines := map[string]machine{
		"avx512": {"AVX512", 16, true},
		"avx2":   {"AVX2", 8, false},
	}
	m, ok := machines[*isa]
	if !ok {
		log.Fatalf("vec: no instruction set %q", *isa)
	}
	ConstraintExpr("amd64")
	m.elements()
	m.halves()
	m.softmax(false)
	m.softmax(true)
	m.tiles()
	m.transpose()
	m.decode()
	m.logs()
	m.exps()
	m.atLeast()
	m.positions()
	m.places()
	m.mirror()
	m.selection()
	m.labels()
	m.signs()
	Generate()
}
