package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

var tables = map[string]Mem{}

// table is a read-only table of bytes, emitted once in a file.
func table(name string, bytes []byte) Mem {
	if m, ok := tables[name]; ok {
		return m
	}
	m := GLOBL(name, attr.RODATA|attr.NOPTR)
	for i, b := range bytes {
		DATA(i, U8(b))
	}
	tables[name] = m
	return m
}

// minWords selects bytes 2h and 2h+1 of each dword as zero-extended words.
func minWords(h int) Mem {
	var b []byte
	for i := range 4 {
		b = append(b, byte(4*i+2*h), 0x80, byte(4*i+2*h+1), 0x80)
	}
	return table(fmt.Sprintf("minWords%d", h), b)
}
