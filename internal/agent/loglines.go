package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// lastLines returns the position of the last n lines of a log that ends at end. An unfinished line
// counts. It reads backwards, one buffer at a time, so it keeps no line in memory and reads little
// more than these lines. Holes have no line breaks and are skipped.
func lastLines(f *os.File, end, n int64, buffer []byte) (begin int64, err error) {
	low, _, err := executor.LogData(f, 0)
	if err != nil {
		return 0, err
	}
	window, size := int64(len(buffer)), int64(len(buffer))
	for at := end; at > low; {
		from := max(at-window, low)
		data, _, err := executor.LogData(f, from)
		switch {
		case err != nil:
			return 0, err
		case data >= at: // a hole, so the next step is twice as large
			at, window = from, min(2*window, at)
			window = max(window, size)
			continue
		case at-from > size: // the data are inside the step
			window = max(window/2, size)
			continue
		}
		read, err := f.ReadAt(buffer[:at-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("read a log: %w", err)
		}
		text := buffer[:read]
		if at == end {
			text = bytes.TrimSuffix(text, []byte{'\n'}) // it ends the last line, and begins none
		}
		for len(text) > 0 {
			i := bytes.LastIndexByte(text, '\n')
			if i < 0 {
				break
			}
			if n--; n == 0 {
				return from + int64(i) + 1, nil
			}
			text = text[:i]
		}
		at = from
	}
	return low, nil
}

// beginOfLine returns where the line begins that holds a position, or the position if a line begins
// there.
func beginOfLine(f *os.File, at int64, buffer []byte) (begin int64, err error) {
	if at == 0 {
		return 0, nil
	}
	var before [1]byte
	if _, err := f.ReadAt(before[:], at-1); err != nil {
		return 0, fmt.Errorf("read a log: %w", err)
	}
	if before[0] == '\n' {
		return at, nil
	}
	return lastLines(f, at, 1, buffer)
}
