package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// tables are the read-only tables of the file, by content.
var tables = map[string]Mem{}

// table is a read-only table of bytes, emitted once in a file.
func table(bytes []byte) Mem {
	if m, ok := tables[string(bytes)]; ok {
		return m
	}
	m := GLOBL(fmt.Sprintf("%sTable%d", *family, len(tables)), attr.RODATA|attr.NOPTR)
	for i, b := range bytes {
		DATA(i, U8(b))
	}
	tables[string(bytes)] = m
	return m
}

// words is a table of 16-bit integers.
func words(values ...int) Mem {
	var b []byte
	for _, v := range values {
		b = append(b, byte(v), byte(v>>8))
	}
	return table(b)
}

// minWords selects bytes 2h and 2h+1 of each dword as zero-extended words.
func minWords(h int) Mem {
	var b []byte
	for i := range 4 {
		b = append(b, byte(4*i+2*h), 0x80, byte(4*i+2*h+1), 0x80)
	}
	return table(b)
}
