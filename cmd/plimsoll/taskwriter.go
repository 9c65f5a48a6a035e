package main

import "bytes"

// taskWriter writes what a task wrote: to a pipe or file byte by byte as it is, to a terminal text
// and colours only. With a prefix it puts that before each line and writes whole lines, so that
// those of several tasks do not mix.
type taskWriter struct {
	prefix string // empty: none
	to     *output
	filter terminalFilter
	rest   []byte // begun line. Invariant: at most longestLine bytes, no line break
}

// longestLine is written in parts if a task writes without line breaks.
const longestLine = 64 << 10

func (w *taskWriter) write(data []byte) {
	if w.to.terminal {
		w.filter.OneLine = w.prefix != ""
		data = w.filter.append(nil, data)
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

// line writes a line. Its colours, if a terminal is shown them, end with it: the next one may be
// another task's.
func (w *taskWriter) line(text []byte) {
	line := append([]byte(w.prefix+" | "), text...)
	if w.to.terminal && bytes.ContainsRune(text, esc) {
		line = append(line, resetColors...)
	}
	w.to.write(append(line, '\n'))
}

func (w *taskWriter) flush() {
	if w.to.terminal {
		w.filter.colored = w.filter.colored && w.prefix == "" // else the line has ended it
		w.pass(w.filter.flush(nil))
	}
	if len(w.rest) > 0 {
		w.line(w.rest)
	}
	w.rest = nil
}
