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

// logHandler serves the logs of tasks.
type logHandler struct {
	ledger  *ledger
	trouble func(Trouble)
	slots   *logSlots
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
	if m.Attempt < 0 {
		return wire.ConnectError(
			plimsoll.Invalid("attempt", "is %d; attempts count from 1, and 0 is the newest", m.Attempt),
		)
	}
	if m.TailBytes < 0 {
		return wire.ConnectError(plimsoll.Invalid("tailBytes", "is negative; give the number of bytes, or 0 for all"))
	}
	if m.TailLines < 0 {
		return wire.ConnectError(plimsoll.Invalid("tailLines", "is negative; give the number of lines, or 0 for all"))
	}
	if err := h.slots.acquire(h.ledger.node); err != nil {
		return wire.ConnectError(err)
	}
	defer h.slots.release()
	t := &tail{
		ledger: h.ledger, task: m.Task, attempt: m.Attempt, follow: m.Follow, last: m.TailBytes, lines: m.TailLines,
	}
	for _, name := range names {
		t.streams = append(t.streams, tailed{name: name})
	}
	defer t.close()
	err := t.run(ctx, func(name string, data []byte) error {
		return stream.Send(&pb.ReadTaskLogResponse{Stream: name, Data: data})
	})
	if err != nil && ctx.Err() == nil && plimsoll.CodeOf(err) == plimsoll.CodeInternal {
		// The caller does not see the cause.
		h.trouble(Trouble{Kind: TroubleSendLog, Task: m.Task, Err: err})
	}
	return wire.ConnectError(err)
}

// tail reads the streams of one attempt.
type tail struct {
	ledger  *ledger
	task    string
	attempt int32
	follow  bool
	last    int64 // begin with the last bytes of each stream; 0: begin with all
	lines   int64 // begin with the last lines of each stream
	streams []tailed
	buffer  [logChunk]byte
}

type tailed struct {
	name string
	file *os.File // nil: not there yet
	end  int64    // without follow: the size at the start of reading
	at   int64
}

func (t *tail) run(ctx context.Context, send func(name string, data []byte) error) error {
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	found := false
	note := func(name string, data []byte) error {
		found = true
		return send(name, data)
	}
	for quiet := 0; ; quiet++ {
		// The status is read before the files, so that the last output is not missed.
		key, known, begun, writing := t.ledger.status(t.task, t.attempt)
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
			"this node has no logs of task %q; it never ran here, or its logs were removed to make room", t.task,
		)
	}
	return plimsoll.Errorf(plimsoll.CodeNotFound, "this node has no logs of attempt %d of task %q; it never ran here, or its logs were removed "+
		"to make room", t.attempt, t.task)
}

// copy sends the new bytes of a stream.
func (t *tail) copy(s *tailed, dir string, send func(name string, data []byte) error) error {
	if s.file == nil {
		f, err := executor.OpenLog(filepath.Join(dir, s.name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		s.file = f
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("measure a log: %w", err)
		}
		s.end = info.Size()
		if t.last > 0 {
			s.at = max(s.end-t.last, 0)
		}
		if t.lines > 0 {
			begin, err := lastLines(f, s.end, t.lines, t.buffer[:])
			if err != nil {
				return err
			}
			s.at = max(s.at, begin)
		}
	}
	for t.follow || s.at < s.end {
		end, err := s.skip()
		if err != nil {
			return err
		}
		n, err := s.file.ReadAt(t.buffer[:min(end-s.at, logChunk)], s.at)
		if end == s.at {
			err = io.EOF
		}
		if !t.follow {
			n = int(min(int64(n), max(s.end-s.at, 0)))
		}
		if s.at += int64(n); n > 0 {
			if err := send(s.name, t.buffer[:n]); err != nil {
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

// skip moves over a hole to the next bytes of the log, and returns the end of those bytes. The
// oldest blocks are given back over the limit, and a seek of the task leaves a hole.
func (s *tailed) skip() (end int64, err error) {
	info, err := s.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("measure a log: %w", err)
	}
	if info.Size() < s.at {
		s.at = 0 // the log was truncated to nothing
	}
	s.at, end, err = executor.LogData(s.file, s.at)
	return end, err
}

func (t *tail) close() {
	for _, s := range t.streams {
		if s.file != nil {
			_ = s.file.Close() // nothing was written to it
		}
	}
}
