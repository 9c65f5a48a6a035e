package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// waitingJob is a job with a long line of progress.
func waitingJob() *plimsoll.JobStatus {
	return &plimsoll.JobStatus{ID: "寿司-job", State: plimsoll.JobAccepted, Groups: []plimsoll.GroupStatus{{
		Name: "main", Count: 3, Counts: plimsoll.TaskCounts{Pending: 3},
		Wait: plimsoll.WaitCause{Code: plimsoll.WaitQueueMax, Queue: "root.batch", Resource: "cpu", Asked: 1000},
	}}}
}

// onTerminal is progress on a terminal of some width.
func onTerminal(line lineTerminal) (p *progress, notes *bytes.Buffer) {
	notes = &bytes.Buffer{}
	return &progress{a: &app{notes: &output{w: notes, terminal: true}, live: !line.plain, line: line}}, notes
}

// A terminal would break a line that is wider than itself, and only the last part would be
// rewritten.
func TestProgressIsNeverWiderThanTheTerminal(t *testing.T) {
	for _, width := range []int{200, 80, 40, 39, 20, 10, 2, 1} {
		p, notes := onTerminal(lineTerminal{width: func() int { return width }})
		p.show(waitingJob())
		line := strings.TrimPrefix(notes.String(), clearLine)
		whole := oneLine(progressLine(waitingJob()))
		if cells(line) > max(width-1, 0) {
			t.Errorf("on %d columns the line takes %d: %q", width, cells(line), line)
		}
		fits := width > cells(whole)
		if fits && line != whole || !fits && width > 2 && !strings.HasSuffix(line, "…") {
			t.Errorf("on %d columns the line is %q", width, line)
		}
	}
}

// When the width of the terminal changes, the line is drawn again, from its whole text.
func TestProgressIsDrawnAgainWhenTheTerminalIsResized(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		width, resized := 20, make(chan os.Signal)
		p, notes := onTerminal(lineTerminal{width: func() int { return width }, resized: resized})
		stop := p.follow()
		p.show(waitingJob())
		synctest.Wait()
		notes.Reset()
		p.mu.Lock()
		width = 200
		p.mu.Unlock()
		resized <- unix.SIGWINCH
		synctest.Wait()
		if want := clearLine + oneLine(progressLine(waitingJob())); notes.String() != want {
			t.Errorf("drawn was %q, want %q", notes.String(), want)
		}
		stop()
		p.end()
		if !strings.HasSuffix(notes.String(), clearLine) {
			t.Errorf("at the end %q stands there", notes.String())
		}
	})
}

// A terminal without control sequences gets a whole line for each change that matters.
func TestProgressOnAPlainTerminalIsLines(t *testing.T) {
	p, notes := onTerminal(lineTerminal{plain: true, width: func() int { return 10 }})
	for range 2 {
		p.show(waitingJob())
	}
	p.end()
	if want := oneLine(progressLine(waitingJob())) + "\n"; notes.String() != want {
		t.Errorf("%q, want %q", notes.String(), want)
	}
}
