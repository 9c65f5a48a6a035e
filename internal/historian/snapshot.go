package historian

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// list reads the lists of the gateway into a snapshot, which is empty. While the gateway is away it
// tries again.
func (h *Historian) list(ctx context.Context, snapshot *fold.Snapshot) error {
	for failures := 1; ; failures++ {
		made := fold.NewSnapshot()
		err := h.listOnce(ctx, made)
		if err == nil {
			*snapshot = *made
			return nil
		}
		switch plimsoll.CodeOf(err) {
		case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeStale:
			h.setWaiting(err)
		default:
			return fmt.Errorf("read the lists of the gateway: %w", err)
		}
		if !pause(ctx, redial.Jittered(failures, rand.Int64N)) {
			return ctx.Err()
		}
	}
}

// listOnce reads queues, nodes, jobs and then tasks: a list that is read later may have more, which
// events tell again.
func (h *Historian) listOnce(ctx context.Context, into *fold.Snapshot) error {
	queues, err := h.cfg.Source.Queues(ctx)
	if err != nil {
		return err
	}
	for i := range queues {
		into.AddQueue(&queues[i])
	}
	nodes, err := h.cfg.Source.Nodes(ctx)
	if err != nil {
		return err
	}
	for i := range nodes {
		into.AddNode(&nodes[i].Node)
	}
	if err := h.listJobs(ctx, into.AddJob); err != nil {
		return err
	}
	filter := client.TaskFilter{States: []plimsoll.TaskState{
		plimsoll.TaskPending, plimsoll.TaskBound, plimsoll.TaskStarting, plimsoll.TaskRunning, plimsoll.TaskStopping,
	}}
	for task, err := range h.cfg.Source.Tasks(ctx, filter) {
		if err != nil {
			return err
		}
		into.AddTask(&task)
	}
	return nil
}

// listJobs calls fn for the jobs of the active store, with their specifications: the snapshot with
// which a watch begins.
func (h *Historian) listJobs(ctx context.Context, fn func(*plimsoll.Job)) error {
	for change, err := range h.cfg.Source.WatchWholeJobs(ctx, client.JobFilter{}, client.WatchPoint{}) {
		if err != nil {
			return err
		}
		switch change.Type {
		case client.ChangePresent:
			fn(&change.Object)
		case client.ChangeSynced:
			return nil
		}
	}
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "the watch of jobs ended before its snapshot")
}

// replayed makes a fold again: from a stored state, by the events behind it up to an instant in
// Unix nanoseconds. each is called for every run of events; it may be nil.
func replayed(
	ctx context.Context, state []byte, replay func(func(history.Events) error) error, until int64,
	each func(*history.Events),
) (*fold.Fold, error) {
	f := fold.New()
	if state != nil {
		var err error
		if f, err = fold.Decode(state); err != nil {
			return nil, err
		}
	}
	err := replay(func(run history.Events) error {
		events, err := eventsUntil(&run, until)
		if err != nil {
			return err
		}
		if each != nil {
			each(&run)
		}
		for len(events) > 0 {
			events = events[f.Apply(events).Taken:]
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// eventsUntil unpacks a run of events, up to the first one behind an instant.
func eventsUntil(run *history.Events, until int64) ([]plimsoll.Event, error) {
	events := make([]plimsoll.Event, 0, min(run.Count, history.MaxWriteEvents))
	for e, err := range ring.Decode(run.Data) {
		if err != nil {
			return nil, fmt.Errorf("events from %d on: %w", run.First, err)
		}
		if e.Time > until {
			break
		}
		events = append(events, e)
	}
	return events, nil
}
