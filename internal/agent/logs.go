package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	logChunk = 64 << 10
	logPoll  = 100 * time.Millisecond // interval of checks for new output

	answerTimeout = 10 * time.Second // for answers that are no stream
)

// logHandler serves the logs and outputs of tasks.
type logHandler struct {
	ledger      *ledger
	trouble     func(Trouble)
	slots       *logSlots
	outputBytes int64 // most bytes of the outputs of a task
}

// newHandler serves the requests of gateways to an agent.
func newHandler(logs *logHandler, qos *qosHandler, proof proofHandler, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	bounded := wire.Bounded(wire.RequestBounds(1 << 20))
	mux.Handle(plimsollv1connect.NewLogServiceHandler(logs, bounded))
	mux.Handle(plimsollv1connect.NewQOSServiceHandler(qos, bounded))
	mux.Handle(plimsollv1connect.NewProofServiceHandler(proof, wire.Bounded(wire.RequestBounds(4096))))
	mux.Handle("/metrics", metrics)
	return transport.TimeAnswers(transport.AnswerConfig{
		Stream: func(r *http.Request) bool {
			return r.URL.Path == plimsollv1connect.LogServiceReadTaskLogProcedure ||
				r.URL.Path == plimsollv1connect.LogServiceReadTaskOutputsProcedure ||
				r.URL.Path == plimsollv1connect.QOSServiceWatchQOSProcedure
		},
		Total: answerTimeout,
		Cut: func(r *http.Request) {
			logs.slots.cut.Inc()
			logs.trouble(
				Trouble{
					Kind: TroubleUnread,
					Err:  plimsoll.Errorf(plimsoll.CodeExhausted, "%s by %s", r.URL.Path, r.RemoteAddr),
				},
			)
		},
	}, mux)
}

// ReadTaskLog sends the logs of an attempt. If the request says follow, new output is sent until
// the attempt has ended.
func (h *logHandler) ReadTaskLog(
	ctx context.Context, req *connect.Request[pb.ReadTaskLogRequest],
	stream *connect.ServerStream[pb.ReadTaskLogResponse],
) error {
	m := req.Msg
	names := []string{m.Stream}
	switch m.Stream {
	case "":
		names = []string{executor.Stdout, executor.Stderr}
	case executor.Stdout, executor.Stderr:
	default:
		return wire.ConnectError(
			plimsoll.Invalid(
				"stream", "%q is not a stream; choose stdout or stderr, or leave it empty for both", m.Stream,
			),
		)
	}
	if err := validateTaskID(m.Task); err != nil {
		return wire.ConnectError(err)
	}
	uid, err := parseUID(m.Uid)
	if err != nil {
		return wire.ConnectError(err)
	}
	if err := checkLogNumbers(m); err != nil {
		return wire.ConnectError(err)
	}
	if err := h.slots.acquire(h.ledger.node); err != nil {
		return wire.ConnectError(err)
	}
	defer h.slots.release()
	t := &tail{
		ledger: h.ledger, task: m.Task, uid: uid, attempt: m.Attempt, follow: m.Follow, last: m.TailBytes,
		lines: m.TailLines,
		timed: m.Timestamps,
	}
	if m.SinceNanos > 0 {
		t.since = max(time.Now().UnixNano()-m.SinceNanos, 1)
	}
	from := map[string]int64{executor.Stdout: m.StdoutFrom, executor.Stderr: m.StderrFrom}
	for _, name := range names {
		t.streams = append(t.streams, tailed{name: name, from: from[name]})
	}
	defer t.close()
	err = t.run(ctx, func(p piece) error {
		return stream.Send(
			&pb.ReadTaskLogResponse{
				Stream: p.stream, Data: p.data, After: p.span.After, Time: p.span.At, Next: p.next,
			},
		)
	})
	if err != nil && ctx.Err() == nil && plimsoll.CodeOf(err) == plimsoll.CodeInternal {
		// The caller does not see the cause.
		h.trouble(Trouble{Kind: TroubleSendLog, Task: m.Task, Err: err})
	}
	return wire.ConnectError(err)
}

// checkLogNumbers reports the first number of a request that is negative.
func checkLogNumbers(m *pb.ReadTaskLogRequest) error {
	switch {
	case m.Attempt < 0:
		return plimsoll.Invalid("attempt", "is %d; attempts count from 1, and 0 is the newest", m.Attempt)
	case m.TailBytes < 0:
		return plimsoll.Invalid("tailBytes", "is negative; give the number of bytes, or 0 for all")
	case m.TailLines < 0:
		return plimsoll.Invalid("tailLines", "is negative; give the number of lines, or 0 for all")
	case m.SinceNanos < 0:
		return plimsoll.Invalid("sinceNanos", "is negative; give a number of nanoseconds, or 0 for all")
	case m.StdoutFrom < 0 || m.StderrFrom < 0:
		return plimsoll.Invalid(
			"stdoutFrom and stderrFrom", "are negative; give what next was, or 0 for the beginning",
		)
	}
	return nil
}

// tail reads the streams of one attempt.
type tail struct {
	ledger  *ledger
	task    string
	uid     plimsoll.UID // of the job; zero: the latest
	attempt int32
	follow  bool
	last    int64 // begin with the last bytes of each stream; 0: begin with all
	lines   int64 // begin with the last lines of each stream
	since   int64 // begin with the first line that may have been written at this instant or later; 0: with all
	timed   bool  // send times too
	streams []tailed
	buffer  [logChunk]byte
}

// piece is a part of a log. Its span is zero unless the tail is timed.
type piece struct {
	stream string
	data   []byte
	next   int64 // place behind the data
	span   executor.LogSpan
}

type tailed struct {
	name string
	from int64    // begin at this place, and not where the tail says; 0: the tail says
	file *os.File // nil: not there yet
	end  int64    // without follow: the size at the start of reading
	at   int64

	times executor.LogTimes // only for a tail that needs them
}

func (t *tail) run(ctx context.Context, send func(piece) error) error {
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	found := false
	note := func(p piece) error {
		found = true
		return send(p)
	}
	for quiet := 0; ; quiet++ {
		// The status is read before the files, so that the last output is not missed.
		key, known, begun, writing := t.ledger.status(t.task, t.uid, t.attempt)
		if !known {
			return t.unknown()
		}
		if begun {
			t.attempt = key.attempt // a follower stays with its first attempt
			for i := range t.streams {
				if err := t.copy(&t.streams[i], t.ledger.attemptDir(key), note); err != nil {
					return err
				}
			}
		}
		if !t.follow || !writing {
			return nil
		}
		if found && quiet > quietPolls {
			ticker.Reset(logPoll)
		}
		if found {
			found, quiet = false, 0
		}
		if quiet == quietPolls { // a quiet task is checked less often
			ticker.Reset(logPollQuiet)
		}
		select {
		case <-ctx.Done():
			return plimsoll.Errorf(plimsoll.CodeCanceled, "the log is no longer followed")
		case <-ticker.C:
		}
	}
}

func (t *tail) unknown() error {
	if t.attempt == 0 {
		return plimsoll.Errorf(
			plimsoll.CodeNotFound,
			"this node has no logs of task %q; it never ran here, or its logs were removed to make room or for their age",
			t.task,
		)
	}
	return plimsoll.Errorf(plimsoll.CodeNotFound, "this node has no logs of attempt %d of task %q; it never ran here, or its logs were removed "+
		"to make room or for their age", t.attempt, t.task)
}

// copy sends the new bytes of a stream.
func (t *tail) copy(s *tailed, dir string, send func(piece) error) error {
	if s.file == nil {
		if found, err := t.open(s, dir); !found || err != nil {
			return err
		}
	}
	for t.follow || s.at < s.end {
		end, lastWrite, err := s.skip()
		if err != nil {
			return err
		}
		p := piece{stream: s.name}
		if t.timed {
			p.span = s.times.Span(s.at, lastWrite)
			end = min(end, p.span.End)
		}
		n, err := s.file.ReadAt(t.buffer[:min(end-s.at, logChunk)], s.at)
		if end == s.at {
			err = io.EOF
		}
		if !t.follow {
			n = int(min(int64(n), max(s.end-s.at, 0)))
		}
		if s.at += int64(n); n > 0 {
			p.data, p.next = t.buffer[:n], s.at
			if err := send(p); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a log: %w", err)
		}
	}
	return nil
}

// open opens a stream and finds where to begin. found is false if there is no file.
func (t *tail) open(s *tailed, dir string) (found bool, err error) {
	f, err := executor.OpenLog(filepath.Join(dir, s.name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.file = f
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("measure a log: %w", err)
	}
	s.end = info.Size()
	if t.since > 0 || t.timed {
		if s.times, err = executor.ReadLogTimes(dir, s.name); err != nil {
			return false, err
		}
	}
	if s.from > 0 {
		s.at = s.from
		return true, nil
	}
	if t.last > 0 {
		s.at = max(s.end-t.last, 0)
	}
	if t.lines > 0 {
		begin, err := lastLines(f, s.end, t.lines, t.buffer[:])
		if err != nil {
			return false, err
		}
		s.at = max(s.at, begin)
	}
	if t.since > 0 {
		begin, err := beginOfLine(f, s.times.Since(t.since, info.ModTime().UnixNano(), s.end), t.buffer[:])
		if err != nil {
			return false, err
		}
		s.at = max(s.at, begin)
	}
	return true, nil
}

// skip moves over a hole to the next bytes of the log, and returns the end of those bytes. A log
// beyond its limit has a hole in the place of its oldest blocks, and a task can make one by a seek.
// lastWrite is in Unix nanoseconds.
func (s *tailed) skip() (end, lastWrite int64, err error) {
	info, err := s.file.Stat()
	if err != nil {
		return 0, 0, fmt.Errorf("measure a log: %w", err)
	}
	if info.Size() < s.at {
		s.at = 0 // the log was truncated to nothing
	}
	s.at, end, err = executor.LogData(s.file, s.at)
	return end, info.ModTime().UnixNano(), err
}

func (t *tail) close() {
	for _, s := range t.streams {
		if s.file != nil {
			_ = s.file.Close() // nothing was written to it
		}
	}
}
