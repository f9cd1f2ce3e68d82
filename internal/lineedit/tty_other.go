//go:build !unix

package lineedit

import "os"

// tty is a terminal that cannot be edited on.
type tty struct{ resized, resumed chan os.Signal }

func openTTY(in, out *os.File) (*tty, bool) { return nil, false }
func (t *tty) set() error                   { return nil }
func (t *tty) close()                       {}
func (t *tty) size() (width, height int)    { return 80, 24 }
