//go:build !unix

package trial

import "os"

// lock opens the file only: this system has no lock that ends with its process.
func lock(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
}

// unlock closes the file.
func unlock(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}
