//go:build unix

package weights

import (
	"os"

	"golang.org/x/sys/unix"
)

// load maps the size bytes of file into memory, read-only. The release
// function ends the mapping; the file itself may be closed before.
func load(file *os.File, size int) (data []byte, release func() error, err error) {
	data, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	adviseHuge(data)
	return data, func() error { return os.NewSyscallError("munmap", unix.Munmap(data)) }, nil
}
