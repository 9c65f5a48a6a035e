package client

import (
	"context"
	"iter"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// NodeInfo is a node with the resources that are allocated on it.
type NodeInfo struct {
	Node   plimsoll.Node
	Status plimsoll.NodeStatus
}

// Nodes reads all nodes, in the order of their ids.
func (c *Client) Nodes(ctx context.Context) ([]NodeInfo, error) {
	res, err := call(ctx, c, c.nodes.ListNodes, &pb.ListNodesRequest{Consistency: c.consistency(ctx)})
	if err != nil {
		return nil, err
	}
	nodes := make([]NodeInfo, len(res.GetNodes()))
	for i, m := range res.GetNodes() {
		nodes[i] = NodeInfo{Node: wire.NodeFromProto(m.GetNode()), Status: wire.NodeStatusFromProto(m.GetStatus())}
	}
	return nodes, nil
}

// SetNodeMode lets a node take tasks, cordons it or drains it.
func (c *Client) SetNodeMode(ctx context.Context, id string, mode plimsoll.NodeMode) (plimsoll.Node, error) {
	req := &pb.SetNodeModeRequest{Id: id, Mode: pb.NodeMode(mode), Token: tokenOf(ctx)}
	res, err := change(ctx, c, c.nodes.SetNodeMode, req)
	if err != nil {
		return plimsoll.Node{}, err
	}
	return wire.NodeFromProto(res.GetNode()), nil
}

// RemoveNode removes a node from the cluster. Its tasks are placed elsewhere.
func (c *Client) RemoveNode(ctx context.Context, id string) error {
	_, err := change(ctx, c, c.nodes.RemoveNode, &pb.RemoveNodeRequest{Id: id, Token: tokenOf(ctx)})
	return err
}

// Queues reads all queues with their use, in the order of their paths.
func (c *Client) Queues(ctx context.Context) ([]plimsoll.QueueStatus, error) {
	res, err := call(ctx, c, c.queues.ListQueues, &pb.ListQueuesRequest{Consistency: c.consistency(ctx)})
	if err != nil {
		return nil, err
	}
	queues := make([]plimsoll.QueueStatus, len(res.GetQueues()))
	for i, m := range res.GetQueues() {
		queues[i] = wire.QueueStatusFromProto(m)
	}
	return queues, nil
}

// QueueConfig reads the configuration of the tree of queues.
func (c *Client) QueueConfig(ctx context.Context) (plimsoll.QueueConfig, error) {
	res, err := call(ctx, c, c.queues.GetQueueConfig, &pb.GetQueueConfigRequest{Consistency: c.consistency(ctx)})
	if err != nil {
		return plimsoll.QueueConfig{}, err
	}
	return wire.QueueConfigFromProto(res.GetConfig()), nil
}

// SetQueueConfig replaces the configuration of the tree of queues. A queue that the new one leaves
// out drains: it takes no new jobs and is removed when its last job has ended.
func (c *Client) SetQueueConfig(ctx context.Context, config plimsoll.QueueConfig) error {
	req := &pb.SetQueueConfigRequest{Config: wire.QueueConfigToProto(&config), Token: tokenOf(ctx)}
	_, err := change(ctx, c, c.queues.SetQueueConfig, req)
	return err
}

// CheckQueueConfig returns the error that SetQueueConfig would return now, and changes nothing.
func (c *Client) CheckQueueConfig(ctx context.Context, config plimsoll.QueueConfig) error {
	req := &pb.SetQueueConfigRequest{Config: wire.QueueConfigToProto(&config), DryRun: true}
	_, err := call(ctx, c, c.queues.SetQueueConfig, req)
	return err
}

// EventFilter chooses events.
type EventFilter struct {
	// Start is the id of the first event wanted; nil: the oldest there is.
	Start *uint64
	// Count is the most events to read; 0: the server's bound.
	Count uint64
	// Object is the id of an object, or of a job with its tasks; empty: events about all objects.
	Object string
	// Since is the earliest instant of an event; zero: any.
	Since time.Time
	// Types are the kinds of objects; empty: all.
	Types []plimsoll.EventSubject
}

// since returns the lower bound of the times in Unix nanoseconds; 0: none.
func (f *EventFilter) since() int64 {
	if f.Since.IsZero() {
		return 0
	}
	return f.Since.UnixNano()
}

func (f *EventFilter) types() []pb.EventSubject {
	types := make([]pb.EventSubject, len(f.Types))
	for i, t := range f.Types {
		types[i] = pb.EventSubject(t)
	}
	return types
}

// EventRecord is an event with its id.
type EventRecord struct {
	ID    uint64
	Event plimsoll.Event
}

// EventPage is one page of events. Ids count from 0 for each InstanceUUID. It stays for as long as
// they go on without a gap, also from one leader to the next.
type EventPage struct {
	InstanceUUID string
	Lowest       uint64 // id of the oldest event that is still there
	Highest      uint64
	Records      []EventRecord
	Next         uint64 // Start of the next page
}

// Events reads recent events in the order in which they happened.
func (c *Client) Events(ctx context.Context, filter EventFilter) (EventPage, error) {
	res, err := call(
		ctx, c, c.events.ListEvents,
		&pb.ListEventsRequest{
			Start: filter.Start, Count: filter.Count, Object: filter.Object, Consistency: c.consistency(ctx),
			Since: filter.since(), Types: filter.types(),
		},
	)
	if err != nil {
		return EventPage{}, err
	}
	if len(res.GetIds()) != len(res.GetEvents()) {
		return EventPage{}, plimsoll.Errorf(plimsoll.CodeCorrupt, "the server sent %d events with %d ids",
			len(res.GetEvents()), len(res.GetIds()))
	}
	page := EventPage{
		InstanceUUID: res.GetInstanceUuid(), Lowest: res.GetLowestId(), Highest: res.GetHighestId(),
		Next:    res.GetNext(),
		Records: make([]EventRecord, len(res.GetIds())),
	}
	for i, id := range res.GetIds() {
		page.Records[i] = EventRecord{ID: id, Event: wire.EventFromProto(res.GetEvents()[i])}
	}
	return page, nil
}

// FollowEvents reads events from filter.Start on and then new ones as they happen, until its
// context ends. A gateway of an older version is asked for new events every interval instead, with
// at most filter.Count in one request; 0: half a second. Where ids begin anew, under another
// InstanceUUID, the reading goes on with the oldest event.
func (c *Client) FollowEvents(
	ctx context.Context, filter EventFilter, interval time.Duration,
) iter.Seq2[EventRecord, error] {
	if interval <= 0 {
		interval = 500 * time.Millisecond
	}
	return func(yield func(EventRecord, error) bool) {
		if c.streamEvents(ctx, filter, yield) {
			return
		}
		instance := ""
		for {
			page, err := c.Events(ctx, filter)
			if err != nil {
				yield(EventRecord{}, err)
				return
			}
			if instance != "" && page.InstanceUUID != instance {
				instance, filter.Start = page.InstanceUUID, nil
				continue
			}
			instance = page.InstanceUUID
			for _, r := range page.Records {
				if !yield(r, nil) {
					return
				}
			}
			behind := filter.Start == nil || page.Next > *filter.Start
			filter.Start = &page.Next
			if behind && len(page.Records) > 0 {
				continue
			}
			pause := time.NewTimer(interval)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				yield(EventRecord{}, wire.FromConnectError(ctx.Err()))
				return
			}
		}
	}
}
