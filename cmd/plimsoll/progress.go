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

// lineTerminal is the terminal on which a line of progress is rewritten.
type lineTerminal struct {
	plain   bool             // it knows no control sequences: progress is lines, as in a file
	width   func() int       // in cells; nil: 80
	resized <-chan os.Signal // the width may have changed; nil: that is not told
}

// stderrTerminal is the one that stderr is, if it is one.
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

// progress shows how far a job is: on a terminal in one line that is rewritten and never wider than
// the terminal, elsewhere in a line for each change that matters.
type progress struct {
	a  *app
	mu sync.Mutex

	line string // on a terminal: what is to be said
	last string // on a terminal: what stands there
	key  string // elsewhere: what the last line was about
}

// lineAnew takes away the line that the cursor is in.
const lineAnew = "\r\x1b[K"

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

// draw needs mu. The last column stays free: a terminal may begin another line behind it.
func (p *progress) draw() {
	room, line := defaultWidth, p.line
	if p.a.line.width != nil {
		room = p.a.line.width()
	}
	if cells(line) > room-1 {
		line = cut(line, room-1)
	}
	if line != p.last {
		p.a.notes.steer(lineAnew + line)
	}
	p.last = line
}

// follow draws the line again when the terminal has another width, until stop is called.
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

// end takes the line away: what follows says more.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != "" {
		p.a.notes.steer(lineAnew)
	}
	p.last = ""
}
