//go:build !unix

package weights

import (
	"io"
	"os"
)

// load reads the size bytes of file into memory, where there is no mmap.
func load(file *os.File, size int) (data []byte, release func() error, err error) {
	data = make([]byte, size)
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}
