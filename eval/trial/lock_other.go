//go:build !unix

package trial

import "os"

// lock opens the file only: this system has no lock that ends with its process.
func lock(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666) }

// unlock closes the file.
func unlock(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}
