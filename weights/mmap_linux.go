package weights

import "golang.org/x/sys/unix"

// adviseHuge asks the system to read the file into huge pages where it can: a
// step that reads every weight otherwise spends some per cent of its time on
// address translation. Pages that are in its cache already stay as they are. A
// refusal costs only speed.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
