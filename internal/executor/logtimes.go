package executor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sys/unix"
)

// Programs write their logs themselves, so no line has a time. While an attempt runs, the
// supervisor looks at the sizes of its logs once a second. It notes each growth in a file beside
// the log.

// timesSuffix, after the name of a log, names the file with its spans.
const timesSuffix = ".times"

// spanBytes is the size of a span in the file: three little-endian integers.
const spanBytes = 3 * 8

// maxSpans bounds the spans of one log, and so its file to 48 KiB. In a full file, each two spans
// become one: the times of older output get coarser.
const maxSpans = 2048

// LogSpan is a part of a log that grew between two looks at its size. Times are Unix nanoseconds.
type LogSpan struct {
	After int64 // it was written after this instant
	At    int64 // and not after this one
	End   int64 // position of its end in the log; it begins where the one before ends
}

// LogTimes are the times of a log.
type LogTimes struct {
	started int64
	spans   []LogSpan // Invariant: End and At never decrease
}

// ReadLogTimes reads the times of a log of an attempt's directory. A task without root's rights
// could have changed the files: what is not in order is left out.
func ReadLogTimes(dir, stream string) (LogTimes, error) {
	var r attemptRecord
	if _, err := readJSON(filepath.Join(dir, attemptFile), &r); err != nil {
		return LogTimes{}, err
	}
	spans, err := readSpans(filepath.Join(dir, stream+timesSuffix))
	return LogTimes{started: r.Started, spans: spans}, err
}

// Span returns the span of the byte at a position. Of bytes that were written after the last look,
// only the last write of the log is known.
func (t *LogTimes) Span(position, lastWrite int64) LogSpan {
	i := sort.Search(len(t.spans), func(i int) bool { return t.spans[i].End > position })
	if i < len(t.spans) {
		return t.spans[i]
	}
	last := LogSpan{After: t.started}
	if i > 0 {
		last.After = t.spans[i-1].At
	}
	return LogSpan{After: last.After, At: max(lastWrite, last.After), End: math.MaxInt64}
}

// Since returns the position from which on output may have been written at an instant or later. end
// is the end of the log.
func (t *LogTimes) Since(instant, lastWrite, end int64) int64 {
	i := sort.Search(len(t.spans), func(i int) bool { return t.spans[i].At >= instant })
	switch {
	case i == len(t.spans) && lastWrite < instant:
		return end
	case i == 0:
		return 0
	}
	return min(t.spans[i-1].End, end)
}

// readSpans reads at most maxSpans spans; none if there is no file.
func readSpans(path string) ([]LogSpan, error) {
	f, err := openRegular(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the times of a log: %w", err)
	}
	var data [maxSpans * spanBytes]byte
	n, err := unix.Pread(int(f.Fd()), data[:], 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read the times of a log: %w", err)
	}
	return decodeSpans(data[:n]), nil
}

func decodeSpans(data []byte) (spans []LogSpan) {
	last := LogSpan{}
	for ; len(data) >= spanBytes; data = data[spanBytes:] {
		number := func(i int) int64 { return int64(binary.LittleEndian.Uint64(data[8*i:])) }
		s := LogSpan{number(0), number(1), number(2)}
		if s.After < 0 || s.At < max(s.After, last.At) || s.End < last.End {
			continue
		}
		spans = append(spans, s)
		last = s
	}
	return spans
}

func appendSpan(data []byte, s LogSpan) []byte {
	for _, n := range []int64{s.After, s.At, s.End} {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
	}
	return data
}

// logTimer notes the growth of one log.
type logTimer struct {
	path   string
	looked int64 // time of the last look
	size   int64 // of the log at that time
	spans  int   // in the file

	failing bool // the last look failed, and that was reported
}

// newLogTimer continues the file of an earlier supervisor. Output since that one's last note
// counts as written since then.
func newLogTimer(log string, started int64) (*logTimer, error) {
	t := &logTimer{path: log + timesSuffix, looked: started}
	spans, err := readSpans(t.path)
	if n := len(spans); n > 0 {
		t.looked, t.size, t.spans = spans[n-1].At, spans[n-1].End, n
	}
	return t, err
}

// look notes how far the log has grown.
func (t *logTimer) look(log *os.File, now int64) error {
	info, err := log.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size == t.size {
		t.looked = now
		return nil
	}
	flag := os.O_APPEND
	if size < t.size { // the log was truncated to nothing
		flag, t.spans = os.O_TRUNC, 0
	}
	if t.spans >= maxSpans {
		if err := t.thin(); err != nil {
			return err
		}
	}
	span := LogSpan{After: min(t.looked, now), At: now, End: size}
	if err := t.write(flag, appendSpan(nil, span)); err != nil {
		return err
	}
	t.looked, t.size = now, size
	t.spans++
	return nil
}

func (t *logTimer) write(flag int, data []byte) error {
	f, err := os.OpenFile(t.path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK|flag, 0o600)
	if err != nil {
		return fmt.Errorf("note when a log was written: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("note when a log was written: %w", err)
	}
	return nil
}

// thin makes one span of each two. A crash before its end leaves fewer spans, and so coarser times.
func (t *logTimer) thin() error {
	spans, err := readSpans(t.path)
	if err != nil {
		return err
	}
	var data []byte
	left := 0
	for i := 0; i < len(spans); i += 2 {
		s := spans[i]
		if i+1 < len(spans) {
			s.At, s.End = spans[i+1].At, spans[i+1].End
		}
		data = appendSpan(data, s)
		left++
	}
	if err := t.write(os.O_TRUNC, data); err != nil {
		return err
	}
	t.spans = left
	return nil
}

// logTimers are the timers of the running attempts. The goroutine that trims logs has them.
type logTimers struct {
	byAttempt map[*attempt][]*logTimer
	next      time.Time // earliest instant of the next look
}

// lookAtLogs looks at the logs of all running attempts, at most once in trimSlowly.
func (s *Supervisor) lookAtLogs(t *logTimers, running []*attempt, now time.Time) {
	if now.Before(t.next) {
		return
	}
	t.next = now.Add(trimSlowly - trimFast)
	known := t.byAttempt
	t.byAttempt = make(map[*attempt][]*logTimer, len(running))
	for _, a := range running {
		timers := known[a]
		if len(timers) != len(a.logs) {
			timers = s.newLogTimers(a)
		}
		for i, timer := range timers {
			err := timer.look(a.logs[i], now.UnixNano())
			if errors.Is(err, os.ErrClosed) {
				continue // the attempt has just ended
			}
			if err != nil && !timer.failing {
				s.trouble(TroubleTimes, a.key, err)
			}
			timer.failing = err != nil
		}
		t.byAttempt[a] = timers
	}
}

func (s *Supervisor) newLogTimers(a *attempt) (timers []*logTimer) {
	started := s.statusOf(a).Started
	for _, f := range a.logs {
		timer, err := newLogTimer(filepath.Join(a.dir, filepath.Base(f.Name())), started)
		if err != nil {
			s.trouble(TroubleTimes, a.key, err)
		}
		timers = append(timers, timer)
	}
	return timers
}
