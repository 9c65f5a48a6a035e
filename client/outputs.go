package client

import (
	"context"
	"iter"
	"time"

	"connectrpc.com/connect"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// OutputPart is one part of the outputs of a task. Exactly one field is set.
type OutputPart struct {
	Summary *OutputSummary // the first part
	File    *OutputFile    // begins a file
	Data    []byte         // the next bytes of the file that began last
}

// OutputSummary counts the files that match the outputs of a task, before the first is sent.
type OutputSummary struct {
	Files    int64           // that follow
	Bytes    int64           // of these files
	Refused  int64           // entries that are not sent, such as symbolic links
	Refusals []OutputRefusal // the first of them
}

// OutputRefusal is an entry that is not sent.
type OutputRefusal struct {
	Path   string // relative to the task's own directory
	Reason string
}

// OutputFile is a file of the outputs. If fewer than Size bytes follow, it was changed while it was
// read.
type OutputFile struct {
	// Path is relative to the task's own directory. It comes from the task's node: see that it does
	// not lead elsewhere before a file is written there.
	Path       string
	Size       int64
	Executable bool
}

// Outputs reads the declared outputs of a task that has ended. An empty jobUID stands for the
// newest job. The error is CodeNotFound if its node has dropped them, and CodeConflict if the task
// has not ended or declares none. Like Logs, it is retried only until the first part has come.
func (c *Client) Outputs(ctx context.Context, task, jobUID string) iter.Seq2[OutputPart, error] {
	return func(yield func(OutputPart, error) bool) {
		for r := c.newRetry(); ; {
			begun, done, err := c.outputsOnce(ctx, task, jobUID, r, yield)
			if done {
				return
			}
			if !begun {
				err = r.wait(ctx, err)
			}
			if err != nil {
				yield(OutputPart{}, err)
				return
			}
		}
	}
}

// outputsOnce reads one stream. begun reports that a part was read, done that the read is over.
func (c *Client) outputsOnce(
	ctx context.Context, task, jobUID string, r *retry, yield func(OutputPart, error) bool,
) (begun, done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.jobs.FetchOutputs(ctx, connect.NewRequest(&pb.FetchOutputsRequest{Task: task, JobUid: jobUID}))
	if err != nil {
		return false, false, r.readError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	var pause time.Duration               // longest time between two reads of the stream
	for stream.Receive() {
		begun = true
		read := time.Now()
		if part, known := outputPart(stream.Msg()); known && !yield(part, nil) {
			return begun, true, nil
		}
		pause = max(pause, time.Since(read))
	}
	if err := stream.Err(); err != nil {
		return begun, false, afterPause(r.readError(ctx, err), pause)
	}
	return begun, true, nil
}

// outputPart converts a message; known is false for a part of a newer version.
func outputPart(m *pb.FetchOutputsResponse) (part OutputPart, known bool) {
	switch p := m.GetPart().(type) {
	case *pb.FetchOutputsResponse_Summary:
		s := &OutputSummary{
			Files: p.Summary.GetFiles(), Bytes: p.Summary.GetBytes(), Refused: p.Summary.GetRefused(),
		}
		for _, r := range p.Summary.GetRefusals() {
			s.Refusals = append(s.Refusals, OutputRefusal{r.GetPath(), r.GetReason()})
		}
		return OutputPart{Summary: s}, true
	case *pb.FetchOutputsResponse_File:
		f := &OutputFile{Path: p.File.GetPath(), Size: p.File.GetSize(), Executable: p.File.GetExecutable()}
		return OutputPart{File: f}, true
	case *pb.FetchOutputsResponse_Data:
		return OutputPart{Data: p.Data}, true
	}
	return OutputPart{}, false
}
