package trace_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/history/historytest"
	"github.com/plimsoll-dev/plimsoll/internal/history/trace"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

const (
	second = int64(time.Second)
	start  = 1_700_000_000 * second
)

var (
	small = plimsoll.Resources{plimsoll.CPU: 1000}
	large = plimsoll.Resources{plimsoll.CPU: 2000, plimsoll.Memory: 1 << 30}
)

// tale is a history that a test tells, in seconds from its beginning.
type tale struct {
	t       *testing.T
	kept    *historytest.Memory
	fold    *fold.Fold
	events  []plimsoll.Event // not written yet
	next    uint64
	encoder ring.Encoder
}

func newTale(t *testing.T) *tale {
	t.Helper()
	return &tale{t: t, kept: historytest.NewMemory(), fold: fold.New()}
}

func (l *tale) tell(at float64, e plimsoll.Event) {
	e.Time = start + int64(at*float64(second))
	l.events = append(l.events, e)
}

// node adds a node that takes tasks.
func (l *tale) node(at float64, id string, capacity plimsoll.Resources) {
	l.tell(at, plimsoll.Event{Type: plimsoll.EventNode, Change: plimsoll.ChangeAdd, Object: id, Resources: capacity})
	l.ofNode(at, id, plimsoll.NodeReady, "ready: true")
	l.ofNode(at, id, plimsoll.NodeSchedulable, "schedulable: true")
}

func (l *tale) ofNode(at float64, id string, detail plimsoll.ChangeDetail, message string) {
	l.tell(at, plimsoll.Event{
		Type: plimsoll.EventNode, Change: plimsoll.ChangeSet, Detail: detail, Object: id, Message: message,
	})
}

// leaf adds a leaf queue; limit may be nil.
func (l *tale) leaf(at float64, path string, limit plimsoll.Resources) {
	l.tell(at, plimsoll.Event{Type: plimsoll.EventQueue, Change: plimsoll.ChangeAdd, Object: path})
	if limit != nil {
		l.limit(at, path, limit)
	}
}

func (l *tale) limit(at float64, path string, limit plimsoll.Resources) {
	l.tell(at, plimsoll.Event{
		Type: plimsoll.EventQueue, Change: plimsoll.ChangeSet, Detail: plimsoll.QueueMax, Object: path,
		Resources: limit,
	})
}

// submit takes in a job of one group, with its tasks.
func (l *tale) submit(at float64, id, queue string, tasks int) {
	l.tell(at, plimsoll.Event{
		Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Object: id,
		Head: &plimsoll.JobHead{UID: plimsoll.MakeUID(start+int64(at*float64(second)), l.next), Owner: "ann"},
	})
	l.ofJob(at, id, plimsoll.AppNew)
	l.tell(at, plimsoll.Event{
		Type: plimsoll.EventQueue, Change: plimsoll.ChangeAdd, Detail: plimsoll.QueueApp, Object: queue, Reference: id,
	})
	for i := range tasks {
		l.ofTask(at, plimsoll.ChangeAdd, plimsoll.AppRequest, plimsoll.TaskID(id, "main", int32(i)), "")
	}
	l.ofJob(at, id, plimsoll.AppAccepted)
}

func (l *tale) ofJob(at float64, id string, detail plimsoll.ChangeDetail) {
	l.tell(at, plimsoll.Event{Type: plimsoll.EventApp, Change: plimsoll.ChangeSet, Detail: detail, Object: id})
}

func (l *tale) ofTask(
	at float64, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, task, message string,
) {
	job, _, _ := strings.Cut(task, ".")
	l.tell(at, plimsoll.Event{
		Type: plimsoll.EventApp, Change: change, Detail: detail, Object: job, Reference: task, Resources: small,
		Message: message,
	})
}

func (l *tale) place(at float64, task, node string, change plimsoll.ChangeType) {
	l.tell(at, plimsoll.Event{
		Type: plimsoll.EventNode, Change: change, Detail: plimsoll.NodeAlloc, Object: node, Reference: task,
		Resources: small,
	})
}

// begins begins an attempt.
func (l *tale) begins(at float64, task, node string) {
	l.place(at, task, node, plimsoll.ChangeAdd)
	l.ofTask(at, plimsoll.ChangeAdd, plimsoll.AppAlloc, task, "")
}

// ends ends an attempt. The task is wanted any more only if it is tried again.
func (l *tale) ends(at float64, task, node string, result plimsoll.TaskResult, again bool) {
	detail := plimsoll.AllocCancel
	if result == plimsoll.ResultLost {
		detail = plimsoll.AllocNodeRemoved
	}
	l.ofTask(at, plimsoll.ChangeRemove, detail, task, result.String())
	l.place(at, task, node, plimsoll.ChangeRemove)
	if !again {
		l.ofTask(at, plimsoll.ChangeRemove, plimsoll.AppRequest, task, "")
	}
}

// write writes what was told as a batch, behind a gap if there is one.
func (l *tale) write(gap *history.Gap) {
	l.t.Helper()
	b := &history.Batch{Instance: "one", First: l.next, Count: uint64(len(l.events)), Gap: gap}
	b.From, b.To = l.events[0].Time, l.events[len(l.events)-1].Time
	for i := range l.events {
		l.encoder.Append(&l.events[i])
	}
	b.Data = l.encoder.Finish(nil)
	for events := l.events; len(events) > 0; {
		r := l.fold.Apply(events)
		b.Objects, b.Jobs = append(b.Objects, r.Objects...), append(b.Jobs, r.Jobs...)
		events = events[r.Taken:]
	}
	if gap != nil {
		b.Fold = l.fold.AppendState(nil)
	}
	if err := l.kept.Write(l.t.Context(), b); err != nil {
		l.t.Fatal(err)
	}
	l.next += b.Count
	l.events = nil
}

// read reads a window that begins some seconds behind the beginning.
func (l *tale) read(from, span float64) *trace.Trace {
	l.t.Helper()
	t, err := l.tryRead(l.t.Context(), from, span)
	if err != nil {
		l.t.Fatal(err)
	}
	return t
}

func (l *tale) tryRead(ctx context.Context, from, span float64) (*trace.Trace, error) {
	if len(l.events) > 0 {
		l.write(nil)
	}
	return trace.Read(ctx, l.kept, trace.Query{
		Since: func(time.Time) (time.Time, error) { return time.Unix(0, start+int64(from*float64(second))), nil },
		Span:  time.Duration(span * float64(second)),
	})
}

// run simulates a window as it was.
func (l *tale) run(t *trace.Trace) *simulate.Report {
	l.t.Helper()
	r, _, err := simulate.Run(&simulate.Config{
		Queues: t.Queues, Changes: t.Changes, Seed: 1, Until: t.Until - t.From,
	}, t.Workload)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}
