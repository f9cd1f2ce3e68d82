//go:build unix

package npy_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gollm/gollm/internal/npy"
)

// A pipe has no size, and to open one would wait for whoever writes to it.
func TestPipesAreRefusedUnopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := npy.ReadFile(path)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("waits for somebody to write")
	}
}
