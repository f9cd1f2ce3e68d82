//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
)

// teletype is a terminal on which gollm chat runs.
type teletype struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	seen int // bytes of the output that a test has waited for

	mu  sync.Mutex
	out strings.Builder

	silent chan struct{} // closed when nothing more will be shown
}

// newTeletype starts gollm chat on a terminal of 24 rows and 80 columns; state is the
// folder of its history.
func newTeletype(t *testing.T, state string, args ...string) *teletype {
	t.Helper()
	y := &teletype{t: t, silent: make(chan struct{}), cmd: clitest.Process(append([]string{"chat"}, args...)...)}
	y.cmd.Env = append(y.cmd.Env, "TERM=xterm-256color", "XDG_STATE_HOME="+state)
	var err error
	if y.tty, err = pty.StartWithSize(y.cmd, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		noTerminals(t, err)
	}
	t.Cleanup(func() { _ = y.cmd.Process.Kill(); y.tty.Close() })
	go y.listen()
	y.await("\x1b[?2004h")
	return y
}

// noTerminals skips a test where the system has none, which a CI machine does.
func noTerminals(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("no terminals here: %v", err)
	}
	t.Skipf("no terminals here: %v", err)
}

// listen keeps what is shown.
func (y *teletype) listen() {
	defer close(y.silent)
	b := make([]byte, 1<<16)
	for {
		n, err := y.tty.Read(b)
		y.mu.Lock()
		y.out.Write(b[:n])
		y.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// shown is what was shown so far.
func (y *teletype) shown() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.out.String()
}

// await waits until a text is shown behind those that were awaited before.
func (y *teletype) await(text string) {
	y.t.Helper()
	for range 6000 {
		if _, after, ok := strings.Cut(y.shown()[y.seen:], text); ok {
			y.seen = len(y.shown()) - len(after)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	shown := y.shown()
	y.t.Fatalf("%q did not appear; the end is %q", text, shown[max(0, len(shown)-2000):])
}

// types sends keys.
func (y *teletype) types(keys string) {
	y.t.Helper()
	if _, err := y.tty.WriteString(keys); err != nil {
		y.t.Fatal(err)
	}
}

// ends waits for the end of the program, and for what it has shown.
func (y *teletype) ends(code int) {
	y.t.Helper()
	if got := clitest.Wait(y.t, y.cmd); got != code {
		y.t.Errorf("exit code %d, want %d: %q", got, code, y.shown())
	}
	<-y.silent
}

// remembered is what the history of a folder holds.
func remembered(t *testing.T, state string) (entries []string) {
	t.Helper()
	for line := range strings.Lines(clitest.ReadFile(t, filepath.Join(state, "gollm", "chat-history"))) {
		var entry string
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry)
	}
	return entries
}

// What is pasted is one message, and a line is as long as it is: both arrive whole.
func TestTerminalTakesWholeTexts(t *testing.T) {
	state := t.TempDir()
	y := newTeletype(t, state, "-m", talker(t, 512), "-n", "3", "--temp", "0")
	var pasted strings.Builder
	for pasted.Len() < 20_000 {
		pasted.WriteString("a line of 漢字 and\ttabs 🙂\n\n")
	}
	y.types("\x1b[200~" + strings.ReplaceAll(pasted.String(), "\n", "\r") + "\x1b[201~")
	y.types("!\r")
	y.await("the context holds 512")
	line := strings.Repeat("0123456789", 1000)
	y.types(line + "\r")
	y.await("the conversation has 100")
	y.types("two\\\rlines\r")
	y.await("> ")
	y.types("\"\"\"\rquoted\rlines\r\"\"\"\r")
	y.await("> ")
	y.types("alt\x1b\renter\r")
	y.await("> ")
	file := filepath.Join(t.TempDir(), "talk.json")
	y.types("/save " + file + "\r")
	y.await("3 turns")
	y.types("\x04")
	y.ends(console.ExitOK)
	entries := remembered(t, state)
	if len(entries) != 6 || entries[0] != pasted.String()+"!" || entries[1] != line {
		t.Errorf("%d entries, the first of %d bytes, want %d, the second of %d", len(entries), len(entries[0]), pasted.Len()+1, len(entries[1]))
	}
	var talk []savedMessage
	if err := json.Unmarshal([]byte(clitest.ReadFile(t, file)), &talk); err != nil || len(talk) != 6 {
		t.Fatal(talk, err)
	}
	for i, want := range []string{"two\nlines", "quoted\nlines", "alt\nenter"} {
		if talk[2*i].Content != want || talk[2*i].Role != "user" {
			t.Errorf("message %d is %+v, want %q", i, talk[2*i], want)
		}
	}
	if mode := strings.Count(y.shown(), "\x1b[?2004l"); mode != 1 {
		t.Errorf("pastes are switched back %d times", mode)
	}
}

// What was typed comes back with the arrow up, in this session and in the next one; a
// history that is off keeps nothing.
func TestTerminalHistory(t *testing.T) {
	state, model := t.TempDir(), talker(t, 512)
	y := newTeletype(t, state, "-m", model, "-n", "2", "--temp", "0")
	y.types("/system first\r")
	y.await("begins anew")
	y.types("/system sec漢\x7fond\r")
	y.await("begins anew")
	y.types("\x1b[A\x1b[A\x1b[B\x1b[A!\r/system\r")
	y.await(`"first!"`)
	y.types("\x04")
	y.ends(console.ExitOK)
	path := filepath.Join(state, "gollm", "chat-history")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	y = newTeletype(t, state, "-m", model, "-n", "2", "--temp", "0")
	y.types("\x10\x10\x10\r/system\r") // before /system and /system first!
	y.await(`"second"`)
	y.types("/exit\r")
	y.ends(console.ExitOK)
	before := clitest.ReadFile(t, path)
	y = newTeletype(t, state, "-m", model, "--history", "off")
	y.types("/help\r")
	y.await("/regen")
	y.types("\x04")
	y.ends(console.ExitOK)
	if clitest.ReadFile(t, path) != before {
		t.Error("a history that is off is written")
	}
}

// Ctrl-C clears a line, says how to leave where there is none, and stops an answer;
// what was typed ahead of it is gone. Ctrl-D deletes in a line and leaves without one.
func TestTerminalInterrupts(t *testing.T) {
	y := newTeletype(t, t.TempDir(), "-m", talker(t, 60000), "--ctx", "60000", "--top-k", "0", "--temp", "3", "--seed", "3", "--history", "off")
	y.types("not sent")
	y.await("not sent")
	y.types("\x03")
	y.await("^C")
	y.types("\x03")
	y.await(howToLeave)
	y.types("Hi\r")
	y.await("Hi")
	y.await("\n")
	for n := len(y.shown()); len(y.shown()) < n+20; {
		time.Sleep(5 * time.Millisecond)
	}
	y.types("typed ahead\x03")
	y.await("[stopped]")
	y.await("> ")
	y.types("/systemm\x02\x04\r") // the second m goes
	y.await("There is no system prompt.")
	y.types("\x04")
	y.ends(console.ExitOK)
	if strings.Contains(y.shown(), "typed ahead") {
		t.Errorf("what was typed before Ctrl-C is still there: %q", y.shown())
	}
}

// A terminal that gets another size is drawn again, and characters of two columns are
// where the cursor thinks they are.
func TestTerminalResizes(t *testing.T) {
	y := newTeletype(t, t.TempDir(), "-m", talker(t, 512), "--history", "off")
	y.types("/system " + strings.Repeat("漢", 50)) // 2 columns each: 10 of the prompt, then 35 and 15
	y.await(strings.Repeat("漢", 35) + "\r\n")
	y.await(strings.Repeat("漢", 15) + "\r\x1b[30C")
	if err := pty.Setsize(y.tty, &pty.Winsize{Rows: 24, Cols: 40}); err != nil {
		t.Fatal(err)
	}
	y.await("> /system " + strings.Repeat("漢", 15) + "\r\n")
	y.await(strings.Repeat("漢", 15) + "\r\x1b[30C")
	y.types("\x1b[D\x7f字\r/system\r")
	y.await(`"` + strings.Repeat("漢", 48) + "字漢" + `"`)
	y.types("\x04")
	y.ends(console.ExitOK)
}

// The keyboard of the terminal is as it was after the program, also after one that a
// signal ended.
func TestTerminalIsGivenBack(t *testing.T) {
	for _, end := range []func(y *teletype){
		func(y *teletype) { y.types("\x04") },
		func(y *teletype) { _ = y.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		ptmx, tty, err := pty.Open()
		if err != nil {
			noTerminals(t, err)
		}
		defer ptmx.Close()
		defer tty.Close()
		y := &teletype{t: t, silent: make(chan struct{}), tty: ptmx, cmd: clitest.Process("chat", "-m", talker(t, 512), "--history", "off")}
		y.cmd.Env = append(y.cmd.Env, "TERM=xterm")
		y.cmd.Stdin, y.cmd.Stdout, y.cmd.Stderr = tty, tty, tty
		y.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := y.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go y.listen()
		y.await("\x1b[?2004h")
		end(y)
		_ = y.cmd.Wait()
		y.await("\x1b[?2004l")
		y.types("echo\n") // the terminal itself shows what is typed, and makes \r\n of the end of a line
		y.await("echo\r\n")
	}
}

// What a model writes is shown on a terminal without what that would obey.
func TestTerminalShowsTextOfAModel(t *testing.T) {
	dir := t.TempDir()
	runs, _ := hostile(t, dir)
	ids := clitest.WriteFile(t, "ids.json", "[1, 270, 300]")
	for _, args := range [][]string{
		{"tokenize", "-m", runs, "--decode", "-f", ids},
		{"inspect", runs, "--template"},
		{"inspect", runs},
		{"generate", "-m", runs, "-p", "a", "-n", "60", "--temp", "3", "--top-k", "0", "--min-p", "0", "--top-p", "1", "--seed", "1", "--ignore-eos"},
	} {
		cmd := clitest.Process(args...)
		cmd.Env = append(cmd.Env, "TERM=xterm")
		tty, err := pty.Start(cmd)
		if err != nil {
			noTerminals(t, err)
		}
		y := &teletype{t: t, silent: make(chan struct{}), tty: tty, cmd: cmd}
		y.listen()
		_ = cmd.Wait()
		tty.Close()
		text := strings.ReplaceAll(y.shown(), "\r\n", "\n")
		if !strings.Contains(text, `\x1b]0;t\a\u009b2J\x7f\u202egnp\u2066`) || regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]`).MatchString(text) {
			t.Errorf("gollm %s shows %q", args[0], text)
		}
	}
}
