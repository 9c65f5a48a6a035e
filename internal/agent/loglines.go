package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// lastLines returns where the last n lines of a log begin, which ends at end. A line that has not
// ended yet counts. It reads backwards, a buffer at a time, so it keeps nothing in memory and reads
// no more than these lines take. Holes are stepped over, and hold no line breaks.
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
		case data >= at: // nothing but a hole, so the next look is at twice as much
			at, window = from, min(2*window, at)
			window = max(window, size)
			continue
		case at-from > size: // the data are somewhere in it
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
