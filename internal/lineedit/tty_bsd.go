//go:build unix && !linux && !aix && !solaris && !illumos

package lineedit

import "golang.org/x/sys/unix"

const getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA
