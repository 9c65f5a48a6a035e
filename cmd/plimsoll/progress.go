package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/plimsoll-dev/plimsoll"
)

// lineTerminal is a terminal on which a line of progress is rewritten.
type lineTerminal struct {
	plain   bool             // the terminal knows no control sequences: progress is printed in lines, as to a file
	width   func() int       // in cells; nil: 80
	resized <-chan os.Signal // gets a signal when the width may have changed; nil: there are no signals
}

// stderrTerminal returns the terminal that stderr is, if it is one.
func stderrTerminal() lineTerminal {
	fd := int(os.Stderr.Fd())
	if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return lineTerminal{plain: true}
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	return lineTerminal{resized: resized, width: func() int {
		width, _, err := term.GetSize(fd)
		if err != nil || width <= 0 {
			return defaultWidth
		}
		return width
	}}
}

const defaultWidth = 80

// progress shows the progress of a job. On a terminal it rewrites one line, which is never wider
// than the terminal. Elsewhere it prints a line for each change that matters.
type progress struct {
	a  *app
	mu sync.Mutex

	line string // on a terminal: the whole text
	last string // on a terminal: the text as it was drawn last
	key  string // elsewhere: the state that the last line reported
}

// clearLine clears the line of the cursor.
const clearLine = "\r\x1b[K"

func (p *progress) show(s *plimsoll.JobStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := oneLine(progressLine(s))
	if p.a.live {
		p.line = line
		p.draw()
		return
	}
	c := totals(s)
	key := fmt.Sprint(s.State, 10*(c.Succeeded+c.Failed)/max(wanted(s), 1), waitReason(s))
	if key != p.key {
		p.a.notes.printf("%s\n", line)
	}
	p.key = key
}

// draw needs mu. The last column stays free, because a terminal may begin another line after it.
func (p *progress) draw() {
	room, line := defaultWidth, p.line
	if p.a.line.width != nil {
		room = p.a.line.width()
	}
	if cells(line) > room-1 {
		line = cut(line, room-1)
	}
	if line != p.last {
		p.a.notes.steer(clearLine + line)
	}
	p.last = line
}

// follow draws the line again when the width of the terminal changes, until stop is called.
func (p *progress) follow() (stop func()) {
	if !p.a.live || p.a.line.resized == nil {
		return func() {}
	}
	over := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-p.a.line.resized:
				p.mu.Lock()
				p.draw()
				p.mu.Unlock()
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		group.Wait()
	}
}

// end removes the line: later output says more.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != "" {
		p.a.notes.steer(clearLine)
	}
	p.last = ""
}
