package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// LogOptions chooses the part of a task's output to read.
type LogOptions struct {
	JobUID    string // the lifetime of the job; empty: the newest
	Attempt   int32  // 0: the last one that has started
	Stream    string // "stdout" or "stderr"; empty: both
	Follow    bool   // wait for more until the attempt has ended
	TailBytes int64  // only this number of last bytes; 0: all
	TailLines int64  // only this number of last lines of each stream; 0: all
	// Since leaves out lines that were written longer ago, by the node's clock; 0: none. A line is
	// sent whole.
	Since      time.Duration
	Timestamps bool // give chunks their times
}

// LogChunk is a piece of a task's output.
type LogChunk struct {
	Stream string // "stdout" or "stderr"
	Data   []byte // the caller may keep and change it
	// With LogOptions.Timestamps the data were written after the instant After, and not after Time,
	// in Unix nanoseconds. The node notes both once a second, and more coarsely for the older part
	// of a long log. 0: unknown.
	After, Time int64
}

// Logs reads the output of a task, also of a job in the archive. After a break it goes on where it
// was, if the server is away for less than the retry budget.
func (c *Client) Logs(ctx context.Context, task string, options LogOptions) iter.Seq2[LogChunk, error] {
	return func(yield func(LogChunk, error) bool) {
		var at logPlace
		for r := c.newRetry(); ; {
			done, again, err := c.logsOnce(ctx, task, options, &at, r, yield)
			if done {
				return
			}
			if again {
				err = r.wait(ctx, err)
			}
			if err != nil {
				yield(LogChunk{}, err)
				return
			}
		}
	}
}

// logPlace is how far a log was read.
type logPlace struct {
	begun          bool  // a chunk was read
	unknown        bool  // the server has not told the place, as one of before places does
	attempt        int32 // that is read
	jobUID         string
	stdout, stderr int64
}

func (at *logPlace) note(m *pb.ReadLogsResponse) {
	at.begun, at.attempt, at.jobUID = true, m.GetAttempt(), m.GetJobUid()
	at.unknown = at.unknown || m.GetNext() == 0 || m.GetAttempt() == 0
	switch m.GetStream() {
	case "stdout":
		at.stdout = m.GetNext()
	case "stderr":
		at.stderr = m.GetNext()
	}
}

// logsOnce reads one stream. done reports that the read is over, again that another stream can go
// on where this one ended.
func (c *Client) logsOnce(
	ctx context.Context, task string, options LogOptions, at *logPlace, r *retry, yield func(LogChunk, error) bool,
) (done, again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if at.begun {
		options.Attempt, options.JobUID = at.attempt, at.jobUID
	}
	stream, err := c.jobs.ReadLogs(ctx, connect.NewRequest(&pb.ReadLogsRequest{
		Task: task, JobUid: options.JobUID, Attempt: options.Attempt, Stream: options.Stream, Follow: options.Follow,
		TailBytes: options.TailBytes,
		TailLines: options.TailLines, SinceNanos: int64(options.Since), Timestamps: options.Timestamps,
		StdoutFrom: at.stdout, StderrFrom: at.stderr,
	}))
	if err != nil {
		return false, true, r.readError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	// pause is the longest time between two reads of the stream.
	var pause time.Duration
	for stream.Receive() {
		read := time.Now()
		m := stream.Msg()
		at.note(m)
		r.reset()
		chunk := LogChunk{Stream: m.GetStream(), Data: m.GetData(), After: m.GetAfter(), Time: m.GetTime()}
		if !yield(chunk, nil) {
			return true, false, nil
		}
		pause = max(pause, time.Since(read))
	}
	if err := stream.Err(); err != nil {
		again = !at.begun || !at.unknown && pause < transport.DefaultUnreadTimeout
		return false, again, afterPause(r.readError(ctx, err), pause)
	}
	return true, false, nil
}

// afterPause explains the error of a stream that the caller did not read for a while. Its server
// cuts such a stream, and cannot send the reason on it.
func afterPause(err error, pause time.Duration) error {
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || pause < transport.DefaultUnreadTimeout {
		return err
	}
	return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Err: err, Msg: fmt.Sprintf(
		"the connection broke after nothing was read for %s; servers cut a stream that is not read for %s: read it again",
		pause.Round(time.Second), transport.DefaultUnreadTimeout)}
}
