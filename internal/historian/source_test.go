package historian_test

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// source is a gateway: a list of events, of which the oldest may be gone, and lists.
type source struct {
	sync.Mutex
	instance string
	lowest   uint64 // id of events[0]
	events   []plimsoll.Event
	changed  chan struct{}
	away     error // of all calls

	jobs   []plimsoll.Job
	tasks  []plimsoll.Task
	nodes  []client.NodeInfo
	queues []plimsoll.QueueStatus

	reports []plimsoll.Historian
	full    error // of reports
}

func newSource() *source { return &source{instance: "first", changed: make(chan struct{})} }

// change changes the source, and wakes those who follow it.
func (s *source) change(f func()) {
	s.Lock()
	defer s.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *source) tell(events ...plimsoll.Event) {
	s.change(func() { s.events = append(s.events, events...) })
}

func (s *source) FollowEventPages(
	ctx context.Context, instance string, start uint64,
) iter.Seq2[client.EventPage, error] {
	return func(yield func(client.EventPage, error) bool) {
		for {
			s.Lock()
			if instance != s.instance {
				instance, start = s.instance, s.lowest
			}
			page, changed, away := client.EventPage{InstanceUUID: s.instance, Next: start}, s.changed, s.away
			for id := max(start, s.lowest); id < s.lowest+uint64(len(s.events)) && len(page.Records) < 100; id++ {
				page.Records = append(page.Records, client.EventRecord{ID: id, Event: s.events[id-s.lowest]})
				page.Next = id + 1
			}
			s.Unlock()
			switch {
			case away != nil:
				yield(client.EventPage{}, away)
				return
			case len(page.Records) > 0:
				if start = page.Next; !yield(page, nil) {
					return
				}
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(client.EventPage{}, ctx.Err())
				return
			}
		}
	}
}

func (s *source) Events(_ context.Context, filter client.EventFilter) (client.EventPage, error) {
	s.Lock()
	defer s.Unlock()
	page := client.EventPage{InstanceUUID: s.instance, Lowest: s.lowest, Highest: s.lowest + uint64(len(s.events)) - 1}
	if len(s.events) == 0 {
		page.Highest = 0
	} else if filter.Start != nil && *filter.Start >= s.lowest && *filter.Start <= page.Highest {
		page.Records = []client.EventRecord{{ID: *filter.Start, Event: s.events[*filter.Start-s.lowest]}}
	}
	return page, s.away
}

func (s *source) WatchWholeJobs(
	context.Context, client.JobFilter, client.WatchPoint,
) iter.Seq2[client.Change[plimsoll.Job], error] {
	return func(yield func(client.Change[plimsoll.Job], error) bool) {
		s.Lock()
		jobs, away := slices.Clone(s.jobs), s.away
		s.Unlock()
		if away != nil {
			yield(client.Change[plimsoll.Job]{}, away)
			return
		}
		for _, j := range jobs {
			if !yield(client.Change[plimsoll.Job]{Type: client.ChangePresent, Object: j}, nil) {
				return
			}
		}
		yield(client.Change[plimsoll.Job]{Type: client.ChangeSynced}, nil)
	}
}

func (s *source) Tasks(context.Context, client.TaskFilter) iter.Seq2[plimsoll.Task, error] {
	return func(yield func(plimsoll.Task, error) bool) {
		for _, task := range s.tasks {
			if !yield(task, nil) {
				return
			}
		}
	}
}

func (s *source) Nodes(context.Context) ([]client.NodeInfo, error) { return s.nodes, nil }

func (s *source) Queues(context.Context) ([]plimsoll.QueueStatus, error) { return s.queues, nil }

func (s *source) ReportHistorian(_ context.Context, h plimsoll.Historian) error {
	s.Lock()
	defer s.Unlock()
	if s.away != nil || s.full != nil {
		return cmp.Or(s.away, s.full)
	}
	s.reports = append(s.reports, h)
	return nil
}

func (s *source) Historians(context.Context) (client.RegisteredHistorians, error) {
	s.Lock()
	defer s.Unlock()
	r := client.RegisteredHistorians{
		InstanceUUID: s.instance, Lowest: s.lowest, Next: s.lowest + uint64(len(s.events)),
	}
	if n := len(s.reports); n > 0 {
		r.Historians = s.reports[n-1:]
	}
	return r, s.away
}
