package main

import (
	"bytes"

	"github.com/plimsoll-dev/plimsoll/internal/terminal"
)

// taskWriter writes the output of a task: unchanged to a pipe or file, only text and colours to a
// terminal. With a prefix it writes whole lines and puts the prefix before each, so that the lines
// of several tasks do not mix.
type taskWriter struct {
	prefix string // empty: no prefix
	to     *output
	filter terminal.Filter
	rest   []byte // line that is not complete. Invariant: at most longestLine bytes, no line break
}

// longestLine is the size of the parts in which a longer line is written.
const longestLine = 64 << 10

func (w *taskWriter) write(data []byte) {
	if w.to.terminal {
		w.filter.OneLine = w.prefix != ""
		data = w.filter.Append(nil, data)
	}
	w.pass(data)
}

func (w *taskWriter) pass(data []byte) {
	if w.prefix == "" {
		w.to.write(data)
		return
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
	}
}

// line writes a line. On a terminal it ends the colours with the line: the next line may be another
// task's.
func (w *taskWriter) line(text []byte) {
	line := append([]byte(w.prefix+" | "), text...)
	if w.to.terminal && bytes.ContainsRune(text, '\x1b') {
		line = append(line, terminal.ResetColors...)
	}
	w.to.write(append(line, '\n'))
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
