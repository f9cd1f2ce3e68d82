package lineedit

import (
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
)

// ErrInterrupted is what Read returns for Ctrl-C where nothing is typed.
var ErrInterrupted = errors.New("interrupted")

// Config is what an editor asks the program. Functions may be nil.
type Config struct {
	Prompt string // before the first line of an entry
	More   string // before the others

	// Continue says that Enter does not end an entry: it returns what the text becomes.
	Continue func(text string) (string, bool)
	// Complete returns what text, which stands before the cursor, may become.
	Complete func(text string) []string
	// Show makes a character safe for the terminal.
	Show func(character string) string

	History *History // nil: of this session
}

// Editor reads entries from a terminal.
type Editor struct {
	Config
	tty    *tty
	keys   decoder
	buffer buffer
	walk   walk
	screen screen
	chunks chan []byte
}

// New switches a terminal to editing; false where it is none that can. Close switches
// it back.
func New(in, out *os.File, c Config) (*Editor, bool) {
	tty, ok := openTTY(in, out)
	if !ok {
		return nil, false
	}
	if c.History == nil {
		c.History = &History{}
	}
	if c.Show == nil {
		c.Show = func(s string) string { return s }
	}
	e := &Editor{Config: c, tty: tty, screen: screen{out: out}, walk: walk{History: c.History}, chunks: make(chan []byte)}
	go e.listen(in)
	_, _ = io.WriteString(out, pasteOn) // Read would fail at the next one
	return e, true
}

// listen passes on what is typed until the terminal is gone.
func (e *Editor) listen(in io.Reader) {
	defer close(e.chunks)
	for {
		b := make([]byte, 1<<16)
		n, err := in.Read(b)
		if n > 0 {
			e.chunks <- b[:n]
		}
		if err != nil {
			return
		}
	}
}

// Close gives the terminal back.
func (e *Editor) Close() {
	_, _ = io.WriteString(e.screen.out, pasteOff) // nobody is left to tell
	e.tty.close()
}

// Drop forgets what was typed and not read, as a terminal does at Ctrl-C.
func (e *Editor) Drop() {
	e.keys.drop()
	select {
	case <-e.chunks:
	default:
	}
}

// Read reads one entry. io.EOF is the end of the input, Ctrl-D where nothing is typed;
// ErrInterrupted is an interrupt where nothing is typed, which elsewhere clears the
// entry.
func (e *Editor) Read(interrupts <-chan os.Signal) (string, error) {
	e.buffer.set("")
	e.walk.begin()
	for {
		text, done, err := e.typed()
		if done || err != nil {
			return text, err
		}
		if err := e.draw(); err != nil {
			return "", err
		}
		select {
		case chunk, ok := <-e.chunks:
			if !ok {
				return "", io.EOF
			}
			e.keys.feed(chunk)
		case <-interrupts:
			if err := e.interrupt(); err != nil {
				return "", err
			}
		case <-e.tty.resized:
			if err := e.screen.reflow(e.tty.size()); err != nil {
				return "", err
			}
		case <-e.tty.resumed:
			if err := e.resume(); err != nil {
				return "", err
			}
		}
	}
}

// resume begins anew on the terminal that others used meanwhile.
func (e *Editor) resume() error {
	if err := e.tty.set(); err != nil {
		return err
	}
	e.screen.forget()
	_, err := io.WriteString(e.screen.out, pasteOn)
	return err
}

// draw shows the entry.
func (e *Editor) draw() error {
	_, height := e.tty.size()
	return e.screen.draw(e.layout(), height)
}

// layout is the entry on the rows of the terminal.
func (e *Editor) layout() layout {
	width, _ := e.tty.size()
	return lay(e.buffer.text, e.buffer.at, e.Prompt, e.More, width, e.Show)
}

// interrupt clears the entry; without one it is an error.
func (e *Editor) interrupt() error {
	e.keys.drop()
	if err := e.screen.leave("^C"); err != nil {
		return err
	}
	if len(e.buffer.text) == 0 {
		return ErrInterrupted
	}
	e.buffer.set("")
	e.walk.begin()
	return nil
}

// typed does what the keys do that were typed, up to the end of an entry.
func (e *Editor) typed() (text string, done bool, err error) {
	for {
		k, ok := e.keys.next()
		if !ok {
			return "", false, nil
		}
		switch k.kind {
		case keyEndOfInput:
			if len(e.buffer.text) == 0 {
				return "", true, cmp.Or(e.draw(), e.screen.leave(""), io.EOF)
			}
			e.buffer.edit(k)
		case keyEnter:
			if text, done, err := e.enter(); done {
				return text, true, err
			}
		default:
			if err := e.press(k); err != nil {
				return "", true, err
			}
		}
	}
}

// enter ends the entry, unless it goes on.
func (e *Editor) enter() (text string, done bool, err error) {
	text = string(e.buffer.text)
	if e.Continue != nil {
		if longer, more := e.Continue(text); more {
			e.buffer.set(longer)
			return "", false, nil
		}
	}
	e.buffer.at = len(e.buffer.text)
	if err := e.draw(); err != nil {
		return "", true, err
	}
	return text, true, e.screen.leave("")
}

// press does what a key does within an entry.
func (e *Editor) press(k key) error {
	switch k.kind {
	case keyUp:
		e.vertical(-1)
	case keyDown:
		e.vertical(1)
	case keyPrevious:
		e.recall(-1)
	case keyNext:
		e.recall(1)
	case keyTab:
		return e.complete()
	case keyClear:
		e.screen.forget()
		_, err := io.WriteString(e.screen.out, clearScreen)
		return err
	default:
		e.buffer.edit(k)
	}
	return nil
}

// vertical moves the cursor some rows, and at the first and the last one through the
// history.
func (e *Editor) vertical(rows int) {
	l := e.layout()
	to := l.row + rows
	if to < 0 || to >= len(l.rows) {
		e.recall(rows)
		return
	}
	e.buffer.at = l.place(e.buffer.text, to, l.col, e.Show)
}

// recall goes through the history.
func (e *Editor) recall(n int) {
	if text, ok := e.walk.step(n, string(e.buffer.text)); ok {
		e.buffer.set(text)
	}
}

// complete completes what stands before the cursor, or lists what it may become.
func (e *Editor) complete() error {
	if e.Complete == nil {
		return nil
	}
	before := string(e.buffer.text[:e.buffer.at])
	all := e.Complete(before)
	if len(all) == 0 {
		return nil
	}
	if common := commonPrefix(all); len(common) > len(before) && strings.HasPrefix(common, before) {
		e.buffer.insert([]rune(common[len(before):]))
		return nil
	}
	if len(all) == 1 {
		return nil
	}
	if err := e.draw(); err != nil {
		return err
	}
	shown := slices.Clone(all)
	for i := range shown {
		shown[i] = e.Show(shown[i])
	}
	_, err := io.WriteString(e.screen.out, strings.Repeat("\n", len(e.screen.rows)-e.screen.row)+"\r"+strings.Join(shown, "  ")+"\n")
	e.screen.forget()
	return err
}

// commonPrefix is what all texts begin with.
func commonPrefix(all []string) string {
	common := []rune(all[0])
	for _, text := range all[1:] {
		other := []rune(text)
		n := 0
		for n < min(len(common), len(other)) && common[n] == other[n] {
			n++
		}
		common = common[:n]
	}
	return string(common)
}
