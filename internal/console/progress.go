package console

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// patience is how long work may take before a bar appears.
const patience = 2 * time.Second

// barMessage is the columns of a bar for what it says is being done.
const barMessage = 40

// Bar shows how far some work is, once it has taken longer than patience, and
// leaves no trace when it stops. Where out is not a terminal it draws nothing;
// under -v it says a line now and then.
type Bar struct {
	out     io.Writer
	writer  progress.Writer // nil where out is not a terminal
	tracker *progress.Tracker
	lines   *progressLines // nil where out is a terminal, and without -v

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	done    chan struct{} // closed when the drawing has ended; nil before it begins
}

// NewBar begins work on total units of the kind named, for example tokens; 0
// means that nobody knows how much there is. log is what -v says, nil for
// nothing.
func NewBar(out io.Writer, log func(format string, args ...any), message string, total int, unit string) *Bar {
	terminal := TerminalOf(out)
	if terminal == nil {
		return &Bar{out: out, lines: newProgressLines(log, message, total, unit)}
	}
	b := drawnBar(terminal, widthOf(terminal), Elide(OneLine(message), barMessage), total, unit)
	b.timer = time.AfterFunc(patience, b.show)
	return b
}

// widthOf asks a terminal for its columns.
func widthOf(terminal *os.File) func() int {
	return func() int {
		width, _, err := term.GetSize(int(terminal.Fd()))
		if err != nil || width < 1 {
			return 80
		}
		return width
	}
}

// drawnBar is a bar that can show itself on a terminal that says how wide it is.
func drawnBar(out io.Writer, width func() int, message string, total int, unit string) *Bar {
	b := &Bar{out: out, writer: newBarWriter(&barLine{out, width}, width())}
	b.tracker = &progress.Tracker{
		Message: message, Total: int64(total),
		AutoStopDisabled: true, // the last report is not the end of the work
		Units:            progress.Units{Notation: unit, NotationPosition: progress.UnitsNotationPositionAfter},
	}
	b.writer.AppendTracker(b.tracker)
	return b
}

// newBarWriter says how a bar looks.
func newBarWriter(out io.Writer, width int) progress.Writer {
	w := progress.NewWriter()
	w.SetOutputWriter(out)
	w.SetTrackerLength(max(10, min(30, width-60)))
	w.SetUpdateFrequency(200 * time.Millisecond)
	style := progress.StyleBlocks
	style.Options.PercentFormat = "%3.0f%%"
	style.Options.Separator = " "
	style.Options.TimeInProgressPrecision = time.Second
	style.Visibility = progress.StyleVisibility{
		ETA: true, Percentage: true, Speed: true, Time: true, Tracker: true, Value: true,
	}
	w.SetStyle(style)
	return w
}

// show draws until stop.
func (b *Bar) show() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return
	}
	b.done = make(chan struct{})
	go func() {
		defer close(b.done)
		b.writer.Render()
	}()
}

// At reports how much is done.
func (b *Bar) At(done int) {
	if b.writer != nil {
		b.tracker.SetValue(int64(done))
	}
	if b.lines != nil {
		b.lines.at(done, time.Now())
	}
}

// Say changes what the bar says is being done.
func (b *Bar) Say(message string) {
	if b.writer != nil {
		b.tracker.UpdateMessage(Elide(OneLine(message), barMessage))
	}
	if b.lines != nil {
		b.lines.message = message
	}
}

// Stop ends the drawing and clears its line. Stopping twice does nothing.
func (b *Bar) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writer == nil || b.stopped {
		return
	}
	b.stopped = true
	if b.timer != nil {
		b.timer.Stop()
	}
	if b.done == nil {
		return
	}
	for running := true; running; { // a Stop that comes before Render has begun is lost
		b.writer.Stop()
		select {
		case <-b.done:
			running = false
		case <-time.After(10 * time.Millisecond):
		}
	}
	_, _ = io.WriteString(b.out, eraseBelow) // cosmetic
}

// eraseBelow erases the line that the cursor is in, and what is below it.
const eraseBelow = "\r\x1b[J"

// barLine puts each frame of a bar in the place of the one before. The cursor waits at
// the beginning of the frame: where a window that becomes narrower wraps the frame into
// several rows, it stays at the first of them, and all are erased.
type barLine struct {
	io.Writer
	width func() int // columns of the terminal, now
}

// Write writes a frame, which has moves of the cursor before it and a line end behind.
func (l *barLine) Write(frame []byte) (int, error) {
	line := strings.TrimRight(string(frame), "\n")
	if erase := text.EraseLine.Sprint(); strings.Contains(line, erase) {
		line = line[strings.LastIndex(line, erase)+len(erase):]
	}
	line = text.Trim(line, l.width()-1) // in the last column some terminals begin a new row
	_, err := io.WriteString(l.Writer, eraseBelow+line+"\r")
	return len(frame), err
}

// progressLines says how far some work is, on lines that are patience apart.
type progressLines struct {
	log         func(format string, args ...any)
	message     string
	total       int
	unit        string
	start, last time.Time
}

// newProgressLines begins; nil where there is nobody to tell.
func newProgressLines(log func(format string, args ...any), message string, total int, unit string) *progressLines {
	if log == nil || total == 0 {
		return nil
	}
	now := time.Now()
	return &progressLines{log: log, message: message, total: total, unit: unit, start: now, last: now}
}

// at reports how much is done at a time.
func (p *progressLines) at(done int, now time.Time) {
	if now.Sub(p.last) < patience || done >= p.total {
		return
	}
	p.last = now
	p.log("%s: %d of %d%s after %s", p.message, done, p.total, p.unit, TimeText(now.Sub(p.start)))
}
