//go:build cuda || cudaemu

package cuda

import (
	"encoding/binary"
	"fmt"
)

// failureSize is the bytes of the first part of a Failure of args.cuh: a code and three numbers.
// The count of NaN scores follows.
const failureSize = 32

// failureTexts are the messages of the codes of args.cuh, formatted with the numbers.
var failureTexts = map[uint32]string{
	1:  "Embed: id %d of row %d, want less than %d",
	2:  "Gather: row %d, want less than %d",
	3:  "page table: slot %d needs block %d, the table has %d",
	4:  "page table: slot %d has page %[2]d, want less than %[3]d",
	5:  "slot %d has length %d, want at least the %d rows of the call and no more than its page table",
	6:  "list: rows of group %d, want less than %d",
	7:  "list of %d entries, want 0 to %d",
	8:  "more entries than a list of %d takes",
	9:  "block %d of the call, want less than %d",
	10: "position %d in scores of %d",
}

// failure reads and clears the first failure of a kernel since it was called last.
func (d *dev) failure() (found, err error) {
	var raw [failureSize]byte
	if err := d.drv.read(raw[:], d.failures.at); err != nil {
		return nil, err
	}
	code := binary.LittleEndian.Uint32(raw[:])
	if code == 0 {
		return nil, nil
	}
	var zero [failureSize]byte
	if err := d.drv.write(d.failures.at, zero[:]); err != nil {
		return nil, err
	}
	number := func(i int) int64 { return int64(binary.LittleEndian.Uint64(raw[8*i:])) }
	text, ok := failureTexts[code]
	if !ok {
		return fmt.Errorf("failure %d", code), nil
	}
	// %.0[4]s uses up the arguments of a text with fewer numbers.
	return fmt.Errorf(text+"%.0[4]s", number(1), number(2), number(3), ""), nil
}

// NaNScores waits and returns the number of NaN scores that selection has met.
func (d *dev) NaNScores() (int64, error) {
	d.ops.Flush()
	var raw [8]byte
	if err := d.drv.read(raw[:], d.failures.at+failureSize); err != nil {
		return 0, fmt.Errorf("cuda: %w", err)
	}
	return int64(binary.LittleEndian.Uint64(raw[:])), nil
}
