package client

import (
	"context"
	"iter"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The calls of this file are answered by a historian, or by `dev`. A gateway without a history
// refuses them with CodeUnimplemented. They are not strict: the newest events may be missing for
// less than a second.

// TimelineFilter chooses events of the history. At most one of Job, Task, Node and Queue is set;
// without one it chooses all events.
type TimelineFilter struct {
	Job          string // with its tasks
	Life         int64  // of the job, from HistoryJob; 0: all lives of the id
	Task         string
	Node         string
	Queue        string
	Since, Until int64 // from the first on, before the second, in Unix nanoseconds; 0: no bound
	// PageSize is the largest number of events for one request. 0: the server's bound.
	PageSize int32
}

// HistoryEvent is an event that the history has. Ids count in InstanceUUID.
type HistoryEvent struct {
	InstanceUUID string
	EventRecord
}

// TimelinePage is a part of a timeline. It may be empty although more follow.
type TimelinePage struct {
	Events []HistoryEvent
	Next   string // where the next page begins; empty: there is none
}

// TimelinePage reads one page of events: the first, or the one that the page before calls Next.
func (c *Client) TimelinePage(ctx context.Context, filter TimelineFilter, next string) (TimelinePage, error) {
	res, err := call(ctx, c, c.history.GetTimeline, &pb.GetTimelineRequest{
		Job: filter.Job, Life: filter.Life, Task: filter.Task, Node: filter.Node, Queue: filter.Queue,
		Since: filter.Since, Until: filter.Until, Cursor: next, Limit: filter.PageSize,
	})
	if err != nil {
		return TimelinePage{}, err
	}
	return timelinePage(res), nil
}

func timelinePage(res *pb.GetTimelineResponse) TimelinePage {
	page, instance := TimelinePage{Next: res.GetNext()}, ""
	for _, m := range res.GetEvents() {
		if m.GetInstanceUuid() != "" {
			instance = m.GetInstanceUuid()
		}
		page.Events = append(page.Events, HistoryEvent{
			instance, EventRecord{ID: m.GetId(), Event: wire.EventFromProto(m.GetEvent())},
		})
	}
	return page
}

// Timeline reads the events that the filter chooses, in the order in which they happened. It stops
// after the first error.
func (c *Client) Timeline(ctx context.Context, filter TimelineFilter) iter.Seq2[HistoryEvent, error] {
	return paged(func(next string) ([]HistoryEvent, string, []string, error) {
		page, err := c.TimelinePage(ctx, filter, next)
		return page.Events, page.Next, nil, err
	})
}

// UsageFilter chooses usage and its groups. An empty field does not restrict.
type UsageFilter struct {
	Since, Until int64 // hours that begin from the first on, before the second, in Unix nanoseconds
	// By has the facts that make a group: owner, queue, job, hour, day, or label: and a key.
	By       []string
	TimeZone string // of days, such as Europe/Berlin; empty: UTC
	Owner    string
	Queue    string // this one, or below it
	Job      string
	Labels   []string // all of these: key=value
	Limit    int32    // most rows; 0: the server's bound
}

// Usage is an answer about usage.
type Usage struct {
	Rows       []UsageRow
	More       bool  // the limit left out rows
	KnownSince int64 // what happened before is not known; Unix nanoseconds
	Newest     int64 // time of the newest event that is counted; Unix nanoseconds
}

// UsageRow is the usage of a group.
type UsageRow struct {
	Keys    []string           // the values of UsageFilter.By
	Used    map[string]float64 // units times seconds, by the name of the resource: see plimsoll.Resources
	Waits   WaitTimes
	Started uint64 // allocations that began
	Ended   uint64 // tasks that ended for good
	Failed  uint64 // those of them that did not succeed
}

// WaitTimes says how long tasks waited, from the request to the allocation. P50 and P95 are at most
// a quarter too long.
type WaitTimes struct {
	Count                   uint64
	Mean, P50, P95, Longest time.Duration
}

// Usage sums up who used how much. Usage is counted by hours.
func (c *Client) Usage(ctx context.Context, filter UsageFilter) (Usage, error) {
	res, err := call(ctx, c, c.history.GetUsage, &pb.GetUsageRequest{
		Since: filter.Since, Until: filter.Until, By: filter.By, TimeZone: filter.TimeZone, Owner: filter.Owner,
		Queue: filter.Queue, Job: filter.Job, Labels: filter.Labels, Limit: filter.Limit,
	})
	if err != nil {
		return Usage{}, err
	}
	return usage(res), nil
}

func usage(res *pb.GetUsageResponse) Usage {
	u := Usage{More: res.GetMore(), KnownSince: res.GetKnownSince(), Newest: res.GetNewest()}
	for _, m := range res.GetRows() {
		w := m.GetWaits()
		row := UsageRow{
			Keys: m.GetKeys(), Used: map[string]float64{},
			Started: m.GetStarted(), Ended: m.GetEnded(), Failed: m.GetFailed(),
			Waits: WaitTimes{
				w.GetCount(), time.Duration(w.GetMean()), time.Duration(w.GetP50()), time.Duration(w.GetP95()),
				time.Duration(w.GetLongest()),
			},
		}
		for _, r := range m.GetUsed() {
			row.Used[r.GetName()] = r.GetUnitSeconds()
		}
		u.Rows = append(u.Rows, row)
	}
	return u
}

// HistoryJobFilter chooses jobs that the history knows. An empty field does not restrict.
type HistoryJobFilter struct {
	ID           string
	Owner        string
	Queue        string   // this one, or below it
	Labels       []string // all of these: key=value
	Since, Until int64    // alive between the two, in Unix nanoseconds
	PageSize     int32    // as TimelineFilter.PageSize
}

// HistoryJob is one life of the id of a job. UID is zero, and Owner and Labels are empty, if they
// could not be learned.
type HistoryJob struct {
	Life      int64 // names the life to the history
	ID        string
	UID       plimsoll.UID
	Owner     string
	Queue     string
	Labels    map[string]string
	State     plimsoll.JobState
	Submitted int64 // Unix nanoseconds
	Ended     int64 // Unix nanoseconds; 0: it has not
}

// HistoryJobPage is a part of a list of jobs, the newest first.
type HistoryJobPage struct {
	Jobs []HistoryJob
	Next string // where the next page begins; empty: there is none
}

// HistoryJobPage reads one page of jobs: the first, or the one that the page before calls Next.
func (c *Client) HistoryJobPage(ctx context.Context, filter HistoryJobFilter, next string) (HistoryJobPage, error) {
	res, err := call(ctx, c, c.history.ListHistoryJobs, &pb.ListHistoryJobsRequest{
		Id: filter.ID, Owner: filter.Owner, Queue: filter.Queue, Labels: filter.Labels, Since: filter.Since,
		Until: filter.Until, Cursor: next, Limit: filter.PageSize,
	})
	if err != nil {
		return HistoryJobPage{}, err
	}
	return historyJobPage(res), nil
}

func historyJobPage(res *pb.ListHistoryJobsResponse) HistoryJobPage {
	page := HistoryJobPage{Next: res.GetNext()}
	for _, m := range res.GetJobs() {
		page.Jobs = append(page.Jobs, HistoryJob{
			Life: m.GetLife(), ID: m.GetId(), UID: wire.UIDFromText(m.GetUid()), Owner: m.GetOwner(),
			Queue: m.GetQueue(), Labels: m.GetLabels(), State: plimsoll.JobState(m.GetState()),
			Submitted: m.GetSubmitted(), Ended: m.GetEnded(),
		})
	}
	return page
}

// HistoryJobs reads the jobs that the filter chooses, the newest first. It stops after the first
// error.
func (c *Client) HistoryJobs(ctx context.Context, filter HistoryJobFilter) iter.Seq2[HistoryJob, error] {
	return paged(func(next string) ([]HistoryJob, string, []string, error) {
		page, err := c.HistoryJobPage(ctx, filter, next)
		return page.Jobs, page.Next, nil, err
	})
}

// HistoryStatus describes a history and its gaps. Times are in Unix nanoseconds.
type HistoryStatus struct {
	InstanceUUID string // of Next; empty: there are no events yet
	Next         uint64 // id of the next event
	Since        int64  // what happened before is not known; 0: there are no events yet
	Newest       int64  // time of the newest event
	Oldest       int64  // time of the oldest event that is kept
	Events, Jobs uint64
	Bytes        int64
	Gaps         []HistoryGap // the newest, the oldest of them first
	Trouble      string       // why no events are taken in at present; empty: they are

	Name         string                // of the historian; empty: it does not register
	Unregistered string                // why it is not registered at present; empty: it is
	Registered   *RegisteredHistorians // all that are; nil: the gateway could not be asked
}

// HistoryGap is a range of events that the history does not have.
type HistoryGap struct {
	InstanceUUID string
	First, Next  uint64 // ids from First to Next-1; both 0: it is not known how many
	From, To     int64  // last event before it, first event behind it, in Unix nanoseconds
	Reason       string
}

// HistoryStatus reads the state of the history.
func (c *Client) HistoryStatus(ctx context.Context) (HistoryStatus, error) {
	res, err := call(ctx, c, c.history.GetHistoryStatus, &pb.GetHistoryStatusRequest{})
	if err != nil {
		return HistoryStatus{}, err
	}
	return historyStatus(res), nil
}

func historyStatus(res *pb.GetHistoryStatusResponse) HistoryStatus {
	s := HistoryStatus{
		InstanceUUID: res.GetInstanceUuid(), Next: res.GetNext(), Since: res.GetSince(), Newest: res.GetNewest(),
		Oldest: res.GetOldest(), Events: res.GetEvents(), Jobs: res.GetJobs(), Bytes: res.GetBytes(),
		Trouble: res.GetTrouble(), Name: res.GetName(), Unregistered: res.GetUnregistered(),
	}
	if m := res.GetRegistered(); m != nil {
		registered := registeredHistorians(m)
		s.Registered = &registered
	}
	for _, m := range res.GetGaps() {
		s.Gaps = append(s.Gaps, HistoryGap{
			InstanceUUID: m.GetInstanceUuid(), First: m.GetFirst(), Next: m.GetNext(), From: m.GetFrom(), To: m.GetTo(),
			Reason: m.GetReason(),
		})
	}
	return s
}
