package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// JobInformer returns an informer on the status of the jobs that the filter chooses; their keys are
// their ids. Its Run keeps a copy of them, calls the handlers for each change, and resumes after a
// break. A job that no longer meets the filter counts as deleted.
//
// config may set everything but Source, Key and Same.
func (c *Client) JobInformer(
	filter JobFilter, config informer.Config[plimsoll.JobStatus],
) (*informer.SharedInformer[plimsoll.JobStatus], error) {
	return newInformer(
		config, &watchSource[pb.WatchJobsRequest, pb.WatchJobsResponse, *pb.WatchedJob, plimsoll.JobStatus]{
			rpc:     c.watches.WatchJobs,
			request: func(from *pb.WatchPoint) *pb.WatchJobsRequest { return jobsRequest(filter, from, false) },
			object:  statusOf,
			key:     func(j *plimsoll.JobStatus) string { return j.ID },
		},
	)
}

// TaskInformer returns an informer on the tasks that the filter chooses, as JobInformer does.
func (c *Client) TaskInformer(
	filter TaskFilter, config informer.Config[plimsoll.Task],
) (*informer.SharedInformer[plimsoll.Task], error) {
	return newInformer(
		config, &watchSource[pb.WatchTasksRequest, pb.WatchTasksResponse, *pb.WatchedTask, plimsoll.Task]{
			rpc: c.watches.WatchTasks, request: filter.watch, object: taskOf,
			key: func(t *plimsoll.Task) string { return t.ID },
		},
	)
}

// NodeInformer returns an informer on all nodes, as JobInformer does.
func (c *Client) NodeInformer(config informer.Config[NodeInfo]) (*informer.SharedInformer[NodeInfo], error) {
	return newInformer(config, &watchSource[pb.WatchNodesRequest, pb.WatchNodesResponse, *pb.WatchedNode, NodeInfo]{
		rpc: c.watches.WatchNodes, request: nodesRequest, object: nodeOf,
		key: func(n *NodeInfo) string { return n.Node.ID },
	})
}

// QueueInformer returns an informer on all queues, whose keys are their paths, as JobInformer does.
func (c *Client) QueueInformer(
	config informer.Config[plimsoll.QueueStatus],
) (*informer.SharedInformer[plimsoll.QueueStatus], error) {
	return newInformer(
		config, &watchSource[pb.WatchQueuesRequest, pb.WatchQueuesResponse, *pb.WatchedQueue, plimsoll.QueueStatus]{
			rpc: c.watches.WatchQueues, request: queuesRequest, object: queueOf,
			key: func(q *plimsoll.QueueStatus) string { return q.Path },
		},
	)
}

func newInformer[Req, Res any, E watchedObject, T any](
	config informer.Config[T], source *watchSource[Req, Res, E, T],
) (*informer.SharedInformer[T], error) {
	if config.Source != nil || config.Key != nil || config.Same != nil {
		return nil, plimsoll.Invalid("config", "sets Source, Key or Same; leave them out, the client sets them")
	}
	config.Source = source
	config.Key = func(object T) (string, error) { return source.key(&object), nil }
	config.Same = func(a, b T) bool { return reflect.DeepEqual(a, b) }
	return informer.NewSharedInformer(config)
}

// watchSource is a watch of a gateway as the source of an informer.
type watchSource[Req, Res any, E watchedObject, T any] struct {
	rpc     func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error)
	request func(from *pb.WatchPoint) *Req
	object  func(E) T
	key     func(*T) string
}

// Open implements informer.Source.
func (s *watchSource[Req, Res, E, T]) Open(ctx context.Context, from informer.Version) (informer.Stream[T], error) {
	var point *pb.WatchPoint
	if !from.IsZero() {
		point = &pb.WatchPoint{Epoch: from.Epoch, Revision: from.Revision}
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := s.rpc(ctx, connect.NewRequest(s.request(point)))
	if err != nil {
		cancel()
		return nil, sourceError(ctx, err)
	}
	return &watchSourceStream[Req, Res, E, T]{
		source: s, ctx: ctx, cancel: cancel, stream: stream, listed: point != nil, at: from,
	}, nil
}

// sourceError returns the error of a watch as an informer knows it.
func sourceError(ctx context.Context, err error) error {
	err = wire.FromReadError(ctx, err)
	if plimsoll.CodeOf(err) == plimsoll.CodeStale {
		return fmt.Errorf("%w: %w", informer.ErrHistoryTooShort, err)
	}
	return err
}

// watchSourceStream is one stream of a watchSource. The parts of a change that is sent in several
// messages are gathered, so that each message of the informer is one step.
type watchSourceStream[Req, Res any, E watchedObject, T any] struct {
	source *watchSource[Req, Res, E, T]
	ctx    context.Context //nolint:containedctx // the stream lives as long as it
	cancel context.CancelFunc
	stream *connect.ServerStreamForClient[Res]
	listed bool             // the snapshot is complete
	at     informer.Version // of the last message
	ended  bool

	// gathered holds the last change of each key since at, in the order of first changes.
	gathered []gatheredChange[T]
	places   map[string]int // places in gathered, by key
}

type gatheredChange[T any] struct {
	key    string
	object T
	gone   bool
}

// Next implements informer.Stream.
func (s *watchSourceStream[Req, Res, E, T]) Next() (informer.Message[T], error) {
	for !s.ended && s.stream.Receive() {
		m, _ := any(s.stream.Msg()).(watchMessage) // every response of WatchService but that of events
		objects := objectsOf[E](m)
		p := m.GetPoint()
		version := informer.Version{Epoch: p.GetEpoch(), Revision: p.GetRevision()}
		if !s.listed {
			return s.part(objects, m.GetSnapshotEnd(), version), nil
		}
		s.gather(objects)
		if p == nil || p.GetPart() > 0 || !s.at.Before(version) {
			continue // the step is not complete, or nothing is new
		}
		return s.step(version), nil
	}
	if s.ended {
		return informer.Message[T]{}, errors.New("the watch has ended")
	}
	s.ended = true
	err := s.stream.Err()
	_ = s.stream.Close() // nothing was written, and Err has the stream's error
	if err == nil {
		return informer.Message[T]{}, io.EOF
	}
	return informer.Message[T]{}, sourceError(s.ctx, err)
}

// part returns a part of the snapshot, or its end.
func (s *watchSourceStream[Req, Res, E, T]) part(objects []E, end bool, version informer.Version) informer.Message[T] {
	m := informer.Message[T]{Kind: informer.SnapshotPart}
	for _, o := range objects {
		m.Objects = append(m.Objects, s.source.object(o))
	}
	if end {
		m.Kind, m.Version = informer.SnapshotEnd, version
		s.listed, s.at = true, version
	}
	return m
}

func (s *watchSourceStream[Req, Res, E, T]) gather(objects []E) {
	for _, o := range objects {
		change := gatheredChange[T]{object: s.source.object(o)}
		change.key = s.source.key(&change.object)
		switch typeOf(o.GetChange()) {
		case ChangeLeft, ChangeDeleted:
			change.gone = true
		}
		if s.places == nil {
			s.places = map[string]int{}
		}
		if i, known := s.places[change.key]; known {
			s.gathered[i] = change
			continue
		}
		s.places[change.key] = len(s.gathered)
		s.gathered = append(s.gathered, change)
	}
}

// step returns the gathered changes as one message.
func (s *watchSourceStream[Req, Res, E, T]) step(version informer.Version) informer.Message[T] {
	m := informer.Message[T]{Kind: informer.Bookmark, Version: version}
	for i := range s.gathered {
		m.Kind = informer.Changed
		if g := &s.gathered[i]; g.gone {
			m.Deleted = append(m.Deleted, informer.Deletion[T]{Key: g.key, Object: g.object})
		} else {
			m.Objects = append(m.Objects, g.object)
		}
	}
	s.gathered, s.places, s.at = nil, nil, version
	return m
}

// Close implements informer.Stream. Next ends soon after it, and releases the connection.
func (s *watchSourceStream[Req, Res, E, T]) Close() error {
	s.cancel()
	return nil
}
