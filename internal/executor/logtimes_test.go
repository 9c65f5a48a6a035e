package executor

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// timedLog is a log that grows while a timer looks at it.
type timedLog struct {
	*testing.T
	dir   string
	file  *os.File
	timer *logTimer
}

func newTimedLog(t *testing.T, started int64) *timedLog {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, Stdout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // no written data matters
	if err := writeJSON(filepath.Join(dir, attemptFile), attemptRecord{Started: started}); err != nil {
		t.Fatal(err)
	}
	l := &timedLog{T: t, dir: dir, file: f}
	l.restart(started)
	return l
}

func (l *timedLog) restart(started int64) {
	l.Helper()
	timer, err := newLogTimer(l.file.Name(), started)
	if err != nil {
		l.Fatal(err)
	}
	l.timer = timer
}

// grow writes bytes and then looks.
func (l *timedLog) grow(bytes int, now int64) {
	l.Helper()
	if _, err := l.file.Write(make([]byte, bytes)); err != nil {
		l.Fatal(err)
	}
	if err := l.timer.look(l.file, now); err != nil {
		l.Fatal(err)
	}
}

func (l *timedLog) times() LogTimes {
	l.Helper()
	times, err := ReadLogTimes(l.dir, Stdout)
	if err != nil {
		l.Fatal(err)
	}
	return times
}

func TestTimesOfALog(t *testing.T) {
	l := newTimedLog(t, 100)
	l.grow(10, 110)
	l.grow(0, 120)
	l.grow(0, 130)
	l.grow(5, 140)
	if _, err := l.file.Write(make([]byte, 7)); err != nil { // after the last look
		t.Fatal(err)
	}
	times := l.times()
	for _, c := range []struct {
		position int64
		want     LogSpan
	}{
		{0, LogSpan{100, 110, 10}},
		{9, LogSpan{100, 110, 10}},
		{10, LogSpan{130, 140, 15}}, // a quiet time before it does not make it less exact
		{15, LogSpan{140, 144, math.MaxInt64}},
	} {
		if got := times.Span(c.position, 144); got != c.want {
			t.Errorf("the byte at %d: %v, want %v", c.position, got, c.want)
		}
	}
	for instant, want := range map[int64]int64{50: 0, 110: 0, 111: 10, 140: 10, 141: 15, 144: 15, 145: 22} {
		if got := times.Since(instant, 144, 22); got != want {
			t.Errorf("since %d: from byte %d on, want %d", instant, got, want)
		}
	}
}

// An attempt that ended before the first look has the instants of its start and of its last write.
func TestTimesOfAShortAttempt(t *testing.T) {
	times := newTimedLog(t, 100).times()
	if got, want := times.Span(3, 105), (LogSpan{100, 105, math.MaxInt64}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if a, b := times.Since(105, 105, 9), times.Since(106, 105, 9); a != 0 || b != 9 {
		t.Errorf("since its last write: from %d on; since later: from %d on", a, b)
	}
}

// While no supervisor runs nobody looks, so what was written meanwhile has a wide span.
func TestTimesGoOnAfterARestart(t *testing.T) {
	l := newTimedLog(t, 100)
	l.grow(10, 110)
	l.restart(100)
	l.grow(10, 200)
	if diff := cmp.Diff([]LogSpan{{100, 110, 10}, {110, 200, 20}}, l.times().spans); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestTimesOfALogThatWasTruncated(t *testing.T) {
	l := newTimedLog(t, 100)
	l.grow(10, 110)
	if err := l.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.file.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	l.grow(4, 120)
	if diff := cmp.Diff([]LogSpan{{110, 120, 4}}, l.times().spans); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// A log that grows every second for half a day keeps its notes within 48 KiB. The newest times are
// exact to two seconds, all others hold still.
func TestTimesAreBounded(t *testing.T) {
	l := newTimedLog(t, 0)
	const seconds = 3*maxSpans + 100
	for i := int64(1); i <= seconds; i++ {
		l.grow(1, i)
	}
	if info, err := os.Stat(l.timer.path); err != nil || info.Size() > maxSpans*spanBytes {
		t.Fatalf("the notes take %v, %v", info, err)
	}
	times := l.times()
	for position := range int64(seconds) {
		s := times.Span(position, seconds)
		if written := position + 1; s.After >= written || s.At < written {
			t.Fatalf("the byte of second %d has the span %v", written, s)
		} else if position > seconds-1000 && s.At-s.After > 2 {
			t.Fatalf("the late byte of second %d has the wide span %v", written, s)
		}
	}
}

// A task that runs as the agent's user may write anything into the file of the times.
func FuzzTimes(f *testing.F) {
	f.Add(appendSpan(appendSpan(nil, LogSpan{1, 2, 3}), LogSpan{2, 4, 8}))
	f.Add(appendSpan(appendSpan(nil, LogSpan{1, 9, 3}), LogSpan{-5, 4, -8}))
	f.Fuzz(func(t *testing.T, data []byte) {
		times := LogTimes{spans: decodeSpans(data)}
		last := LogSpan{}
		for _, s := range times.spans {
			if s.At < last.At || s.End < last.End || s.After > s.At || s.After < 0 {
				t.Fatalf("%v after %v", s, last)
			}
			last = s
		}
		if at := times.Since(time.Now().UnixNano(), 5, 10); at < 0 || at > 10 {
			t.Fatalf("begins at %d", at)
		}
	})
}
