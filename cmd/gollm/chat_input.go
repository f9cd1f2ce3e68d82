package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/lineedit"
	"github.com/gollm/gollm/internal/userfile"
)

// entries is where the messages of a conversation come from.
type entries interface {
	next() (string, error) // io.EOF is the end
	drop()                 // forgets what was typed ahead, after Ctrl-C
	close()
}

// newEntries reads messages with an editor where a person types on a terminal that can
// be edited on, and line by line elsewhere.
func (c *chatFlags) newEntries(s *session, cmd *cobra.Command) entries {
	in, _ := cmd.InOrStdin().(*os.File)
	out := console.TerminalOf(cmd.OutOrStdout())
	if in != nil && out != nil && os.Getenv("TERM") != "dumb" {
		e, ok := lineedit.New(in, out, lineedit.Config{
			Prompt: "> ", More: "  ", Continue: goesOn, Complete: completeEntry, Show: console.VisibleText, History: c.openHistory(s, cmd),
		})
		if ok {
			return &edited{session: s, editor: e}
		}
	}
	return &plainLines{session: s, lines: readLines(cmd.InOrStdin())}
}

// openHistory is what was typed in sessions before.
func (c *chatFlags) openHistory(s *session, cmd *cobra.Command) *lineedit.History {
	path := c.history
	if path == "off" {
		path = ""
	} else if path == "" {
		path = defaultHistory()
	}
	h, err := lineedit.OpenHistory(path)
	if err != nil {
		console.Warner(cmd)("what was typed before is not there: %s", console.Message(err))
	}
	return h
}

// defaultHistory is the file of the history where --history names none; empty where the
// user has no folder for it.
func defaultHistory() string {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "gollm", "chat-history")
}

// edited is what is typed with an editor.
type edited struct {
	*session
	editor *lineedit.Editor
}

func (e *edited) next() (string, error) {
	for {
		text, err := e.editor.Read(e.interrupts)
		if errors.Is(err, lineedit.ErrInterrupted) {
			e.say(howToLeave)
			continue
		}
		if err != nil {
			return "", err
		}
		if err := e.editor.History.Add(text); err != nil {
			e.say("what is typed is not remembered for later sessions: %s", console.Message(err))
		}
		return unquoted(text), nil
	}
}

func (e *edited) drop()  { e.editor.Drop() }
func (e *edited) close() { e.editor.Close() }

// howToLeave answers Ctrl-C where there is nothing to stop.
const howToLeave = "Ctrl-D or /exit ends the conversation."

// quotes are what stands around a message of several lines.
const quotes = `"""`

// goesOn reports whether Enter does not end a message, and what it becomes: one that
// ends in a backslash, which goes, and one whose quotes are open.
func goesOn(text string) (string, bool) {
	if more, ok := strings.CutSuffix(text, `\`); ok {
		return more + "\n", true
	}
	if strings.HasPrefix(text, quotes) && strings.Count(text, quotes)%2 == 1 {
		return text + "\n", true
	}
	return text, false
}

// unquoted is a message without the quotes around it, and without the ends of lines
// next to them.
func unquoted(text string) string {
	inner, ok := strings.CutPrefix(strings.TrimRight(text, " \n"), quotes)
	if !ok || strings.Count(inner, quotes) != 1 {
		return text
	}
	if inner, ok = strings.CutSuffix(inner, quotes); !ok {
		return text
	}
	return strings.TrimSuffix(strings.TrimPrefix(inner, "\n"), "\n")
}

// completeEntry is what the beginning of a command, or the file of one, may become.
func completeEntry(text string) []string {
	if strings.Contains(text, "\n") {
		return nil
	}
	name, file, hasFile := strings.Cut(text, " ")
	if hasFile {
		if name != "/save" && name != "/load" {
			return nil
		}
		return completeFile(name+" ", strings.TrimLeft(file, " "))
	}
	var all []string
	for _, c := range chatCommands() {
		if strings.HasPrefix(c.name, name) && text != "" {
			all = append(all, c.name+c.after)
		}
	}
	return all
}

// maxCompletions bounds the files that are listed.
const maxCompletions = 100

// completeFile is the files whose names begin as one that is being typed; folders end
// in a separator.
func completeFile(before, file string) []string {
	dir, base := filepath.Split(file)
	list, err := os.ReadDir(homePath(filepath.Join(dir, ".")))
	if err != nil {
		return nil
	}
	var all []string
	for _, f := range list {
		name := f.Name()
		if !strings.HasPrefix(name, base) || base == "" && strings.HasPrefix(name, ".") {
			continue
		}
		if f.IsDir() {
			name += string(filepath.Separator)
		}
		all = append(all, before+dir+name)
	}
	slices.Sort(all)
	return all[:min(len(all), maxCompletions)]
}

// homePath is a path whose ~ stands for the folder of the user, as shells have it.
func homePath(path string) string {
	rest, ok := strings.CutPrefix(path, "~")
	home, err := os.UserHomeDir()
	if !ok || err != nil || rest != "" && !os.IsPathSeparator(rest[0]) {
		return path
	}
	return home + rest
}

// plainLines is what comes on lines, from a pipe or from a terminal that nothing can be
// edited on.
type plainLines struct {
	*session
	lines <-chan line
}

// longestLine is the bytes of a line, without its end, that Linux keeps of one where a
// terminal collects lines.
const longestLine = 4095

// cutByTerminal reports whether a line of a message is as long as a line that was cut.
func cutByTerminal(text string) bool {
	for line := range strings.Lines(text) {
		if len(strings.TrimSuffix(line, "\n")) >= longestLine {
			return true
		}
	}
	return false
}

func (*plainLines) drop()  {}
func (*plainLines) close() {}

// line is a line of input, or the error that ended it.
type line struct {
	text string
	err  error
}

// readLines reads lines in the background, so that Ctrl-C is seen meanwhile.
func readLines(in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		r := bufio.NewReader(in)
		for {
			text, err := readMessage(r)
			if text != "" {
				lines <- line{text: text}
			}
			if err != nil {
				lines <- line{err: err}
				return
			}
		}
	}()
	return lines
}

// readMessage reads a line, and the next one too where it ends in a backslash.
func readMessage(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		text, err := userfile.ReadLine(r, "a line of stdin", userfile.MaxText)
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
		more, goesOn := strings.CutSuffix(text, `\`)
		b.WriteString(more)
		if err != nil || !goesOn {
			return b.String(), err
		}
		b.WriteByte('\n')
	}
}

// next shows the prompt and waits for a line. Ctrl-C only says how to leave,
// except where nobody types: there it ends the program.
func (s *plainLines) next() (string, error) {
	for {
		if s.interactive {
			if _, err := io.WriteString(s.out, "> "); err != nil {
				return "", err
			}
		}
		select {
		case l := <-s.lines:
			if l.err == io.EOF && s.interactive {
				_, _ = io.WriteString(s.out, "\n") // the shell's prompt goes on a line of its own
			}
			if s.interactive && cutByTerminal(l.text) {
				s.say("A line has %d bytes, after which this terminal cuts lines without a word; it is not sent. Use -f with gollm generate, or a pipe.", longestLine)
				continue
			}
			return l.text, l.err
		case <-s.interrupts:
			if !s.interactive {
				return "", console.ErrInterrupted
			}
			_, _ = io.WriteString(s.out, "\n") // cosmetic
			s.say(howToLeave)
		}
	}
}
