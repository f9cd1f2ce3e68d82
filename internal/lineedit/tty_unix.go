//go:build unix

package lineedit

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// tty is a terminal without lines and echo.
type tty struct {
	in, out *os.File
	before  unix.Termios // to give back
	editing unix.Termios
	resized chan os.Signal
	resumed chan os.Signal
	ends    chan os.Signal
	once    sync.Once
}

// openTTY switches a terminal, false where in or out is none.
func openTTY(in, out *os.File) (*tty, bool) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), getTermios)
	if err != nil || !term.IsTerminal(int(out.Fd())) {
		return nil, false
	}
	t := &tty{in: in, out: out, before: *before, editing: *before,
		resized: make(chan os.Signal, 1), resumed: make(chan os.Signal, 1), ends: make(chan os.Signal, 1)}
	t.editing.Lflag &^= unix.ICANON | unix.ECHO | unix.ECHONL | unix.IEXTEN
	t.editing.Iflag &^= unix.ICRNL | unix.INLCR | unix.IGNCR | unix.IXON | unix.ISTRIP
	t.editing.Cc[unix.VMIN], t.editing.Cc[unix.VTIME] = 1, 0
	if t.set() != nil {
		return nil, false
	}
	signal.Notify(t.resized, unix.SIGWINCH)
	signal.Notify(t.resumed, unix.SIGCONT)
	signal.Notify(t.ends, unix.SIGTERM, unix.SIGHUP)
	go t.giveBackAtEnd()
	return t, true
}

// giveBackAtEnd ends the program as a signal asks for, with the terminal as it was.
func (t *tty) giveBackAtEnd() {
	s, ok := <-t.ends
	if !ok {
		return
	}
	_, _ = t.out.WriteString(pasteOff) // the program ends
	_ = t.restore()
	signal.Reset(s)
	_ = unix.Kill(os.Getpid(), s.(syscall.Signal))
}

// set switches the terminal to editing.
func (t *tty) set() error { return unix.IoctlSetTermios(int(t.in.Fd()), setTermios, &t.editing) }

// restore switches it back.
func (t *tty) restore() error { return unix.IoctlSetTermios(int(t.in.Fd()), setTermios, &t.before) }

// close gives the terminal back.
func (t *tty) close() {
	t.once.Do(func() {
		for _, c := range []chan os.Signal{t.resized, t.resumed, t.ends} {
			signal.Stop(c)
		}
		close(t.ends)
		_ = t.restore() // a terminal that is gone needs nothing
	})
}

// size is the columns and rows of the terminal.
func (t *tty) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}
