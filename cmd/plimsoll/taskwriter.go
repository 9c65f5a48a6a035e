package main

import (
	"bytes"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/terminal"
)

// taskWriter writes the output of a task: unchanged to a pipe or file, only text and colours to a
// terminal. With a prefix or times it writes whole lines and puts these before each, so that the
// lines of several tasks do not mix.
type taskWriter struct {
	prefix string // empty: no prefix
	timed  bool   // each line begins with its time
	at     int64  // time of what is written next, in Unix nanoseconds; 0: unknown
	began  int64  // time of the beginning of rest
	to     *output
	filter terminal.Filter
	rest   []byte // line that is not complete. Invariant: at most longestLine bytes, no line break
}

// longestLine is the size of the parts in which a longer line is written.
const longestLine = 64 << 10

func (w *taskWriter) write(data []byte) {
	if w.to.terminal {
		w.filter.OneLine = w.lines()
		data = w.filter.Append(nil, data)
	}
	w.pass(data)
}

// lines reports whether whole lines are written.
func (w *taskWriter) lines() bool { return w.timed || w.prefix != "" }

func (w *taskWriter) pass(data []byte) {
	if !w.lines() {
		w.to.write(data)
		return
	}
	if len(w.rest) == 0 {
		w.began = w.at
	}
	w.rest = append(w.rest, data...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 && len(w.rest) < longestLine {
			return
		}
		if i < 0 {
			i = len(w.rest) - 1
		}
		w.line(bytes.TrimSuffix(w.rest[:i+1], []byte("\n")))
		w.rest = append(w.rest[:0], w.rest[i+1:]...)
		w.began = w.at
	}
}

// line writes a line. On a terminal it ends the colours with the line: the next line may be another
// task's.
func (w *taskWriter) line(text []byte) {
	line := append([]byte(w.begin()), text...)
	if w.to.terminal && bytes.ContainsRune(text, '\x1b') {
		line = append(line, terminal.ResetColors...)
	}
	w.to.write(append(line, '\n'))
}

// begin returns what stands before a line.
func (w *taskWriter) begin() string {
	text := ""
	if w.prefix != "" {
		text = w.prefix + " | "
	}
	if w.timed {
		text += logTime(w.began) + " "
	}
	return text
}

// logTime returns a time of a log. A log's node knows it to the second.
func logTime(nanos int64) string {
	if nanos == 0 {
		return "-"
	}
	return time.Unix(0, nanos).UTC().Format(time.RFC3339)
}

func (w *taskWriter) flush() {
	if w.to.terminal {
		w.pass(w.filter.Flush(nil))
	}
	if len(w.rest) > 0 {
		w.line(w.rest)
	}
	w.rest = nil
}
