//go:build unix

package trial

import (
	"errors"
	"os"
	"syscall"
)

// lock takes the lock of a file, which ends with the process however it ends. Its
// error is errUnderWay where another has it.
func lock(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errUnderWay
		}
		return nil, &os.PathError{Op: "flock", Path: name, Err: err}
	}
	return f, nil
}

// unlock gives a lock back.
func unlock(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}
