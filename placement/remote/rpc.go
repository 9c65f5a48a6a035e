package remote

import (
	"context"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// DefaultDeadline is the longest time that a handler works on a call.
const DefaultDeadline = 30 * time.Second

// bounds are those of a request and of an answer. A batch has many servers with many facts each.
var bounds = wire.Bounds{Bytes: MaxBody, Decoded: 16 * MaxBody}

// Serving has the options of a handler.
type Serving struct {
	Deadline time.Duration // longest time for a call; 0: DefaultDeadline; a caller may allow less
	Failed   func(error)   // called with errors whose text callers do not see; nil: not called
}

// NewHandler serves an evaluator as plimsoll.v1.PlacementService: with Connect, gRPC and gRPC-Web,
// over HTTP/1.1 and HTTP/2. It returns the handler and the path for it in a mux. A PartEvaluator
// answers all calls, any other Evaluator only Evaluate.
func NewHandler(e Evaluator, s Serving) (path string, handler http.Handler) {
	if s.Deadline <= 0 {
		s.Deadline = DefaultDeadline
	}
	return plimsollv1connect.NewPlacementServiceHandler(
		&service{e, s}, wire.Bounded(bounds), connect.WithSendMaxBytes(MaxBody),
	)
}

type service struct {
	evaluator Evaluator
	serving   Serving
}

// Evaluate is part of plimsollv1connect.PlacementServiceHandler.
func (s *service) Evaluate(
	ctx context.Context, call *connect.Request[pb.EvaluateRequest],
) (*connect.Response[pb.EvaluateResponse], error) {
	return answer(ctx, s, func(ctx context.Context) (*pb.EvaluateResponse, error) {
		b, err := batchFromProto(call.Msg)
		if err != nil {
			return nil, err
		}
		e, err := s.evaluator.Evaluate(ctx, b)
		if err != nil {
			return nil, err
		}
		return evaluationToProto(e), nil
	})
}

// CountSpread is part of plimsollv1connect.PlacementServiceHandler.
func (s *service) CountSpread(
	ctx context.Context, call *connect.Request[pb.CountSpreadRequest],
) (*connect.Response[pb.CountSpreadResponse], error) {
	return answer(ctx, s, func(ctx context.Context) (*pb.CountSpreadResponse, error) {
		e, err := s.part()
		if err != nil {
			return nil, err
		}
		q, err := spreadQuestionFromProto(call.Msg)
		if err != nil {
			return nil, err
		}
		tallies, err := e.CountSpread(ctx, q)
		m := &pb.CountSpreadResponse{}
		for _, t := range tallies {
			m.Tallies = append(m.Tallies, tallyToProto(t))
		}
		return m, err
	})
}

// Capacity is part of plimsollv1connect.PlacementServiceHandler.
func (s *service) Capacity(
	ctx context.Context, call *connect.Request[pb.CapacityRequest],
) (*connect.Response[pb.CapacityResponse], error) {
	return answer(ctx, s, func(ctx context.Context) (*pb.CapacityResponse, error) {
		e, err := s.part()
		if err != nil {
			return nil, err
		}
		q, err := capacityQuestionFromProto(call.Msg)
		if err != nil {
			return nil, err
		}
		list, err := e.Capacity(ctx, q)
		m := &pb.CapacityResponse{}
		for i := range list {
			m.Capacities = append(m.Capacities, capacityToProto(&list[i]))
		}
		return m, err
	})
}

// listedAtOnce is the number of servers in one message of a listing.
const listedAtOnce = 500

// ListServers is part of plimsollv1connect.PlacementServiceHandler.
func (s *service) ListServers(
	ctx context.Context, call *connect.Request[pb.ListServersRequest],
	stream *connect.ServerStream[pb.ListServersResponse],
) error {
	listed, err := answer(ctx, s, func(ctx context.Context) (*[]placement.Server, error) {
		e, err := s.part()
		if err != nil {
			return nil, err
		}
		list, err := e.ListServers(ctx, queryFromProto(call.Msg.GetQuery()))
		return &list, err
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(*listed.Msg, listedAtOnce) {
		m := &pb.ListServersResponse{}
		for i := range some {
			m.Servers = append(m.Servers, serverToProto(&some[i]))
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// part returns the evaluator if it knows its servers.
func (s *service) part() (PartEvaluator, error) {
	if e, ok := s.evaluator.(PartEvaluator); ok {
		return e, nil
	}
	return nil, plimsoll.Errorf(plimsoll.CodeUnimplemented,
		"this evaluator does not know which servers are its own; it evaluates batches alone")
}

// answer works on one call, within the deadline.
func answer[M any](
	ctx context.Context, s *service, work func(context.Context) (*M, error),
) (*connect.Response[M], error) {
	ctx, cancel := context.WithTimeout(ctx, s.serving.Deadline)
	defer cancel()
	m, err := work(ctx)
	if err != nil {
		if s.serving.Failed != nil && plimsoll.CodeOf(err) == plimsoll.CodeInternal && ctx.Err() == nil {
			s.serving.Failed(err)
		}
		return nil, wire.ConnectError(err)
	}
	return connect.NewResponse(m), nil
}

// Client is an evaluator in another process.
type Client struct {
	rpc plimsollv1connect.PlacementServiceClient
}

// NewClient returns an evaluator that calls the handler at a base URL, such as
// http://127.0.0.1:9090. The contexts of the calls bound their time.
func NewClient(client connect.HTTPClient, url string) *Client {
	return &Client{
		plimsollv1connect.NewPlacementServiceClient(
			client, url, wire.BoundedClient(bounds), connect.WithSendMaxBytes(MaxBody),
		),
	}
}

// Evaluate sends a batch to the evaluator, once.
func (c *Client) Evaluate(ctx context.Context, b *Batch) (*Evaluation, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	m, err := batchToProto(b)
	if err != nil {
		return nil, err
	}
	answer, err := c.rpc.Evaluate(ctx, connect.NewRequest(m))
	if err != nil {
		return nil, wire.FromConnectError(err)
	}
	return evaluationFromProto(answer.Msg), nil
}

// MaxListed is the largest number of servers that one evaluator may list.
const MaxListed = 1 << 20

// ListServers asks for the servers of the evaluator that match a query.
func (c *Client) ListServers(ctx context.Context, q placement.Query) ([]placement.Server, error) {
	stream, err := c.rpc.ListServers(ctx, connect.NewRequest(&pb.ListServersRequest{Query: queryToProto(&q)}))
	if err != nil {
		return nil, wire.FromConnectError(err)
	}
	defer func() { _ = stream.Close() }() // the stream is read to its end, or an error is returned
	var out []placement.Server
	for stream.Receive() {
		for _, m := range stream.Msg().GetServers() {
			if len(out) == MaxListed {
				return nil, plimsoll.Errorf(plimsoll.CodeExhausted,
					"it lists more than %d servers, as many as one evaluator may", MaxListed)
			}
			out = append(out, serverFromProto(m))
		}
	}
	if err := stream.Err(); err != nil {
		return nil, wire.FromConnectError(err)
	}
	return out, nil
}

// CountSpread asks the evaluator to count a group on its servers.
func (c *Client) CountSpread(ctx context.Context, q *SpreadQuestion) ([]placement.SpreadTally, error) {
	m, err := spreadQuestionToProto(q)
	if err != nil {
		return nil, err
	}
	answer, err := c.rpc.CountSpread(ctx, connect.NewRequest(m))
	if err != nil {
		return nil, wire.FromConnectError(err)
	}
	var out []placement.SpreadTally
	for _, t := range answer.Msg.GetTallies() {
		out = append(out, tallyFromProto(t))
	}
	return out, nil
}

// Capacity asks for the amounts left on servers: three numbers for each.
func (c *Client) Capacity(ctx context.Context, q *CapacityQuestion) ([]Capacity, error) {
	answer, err := c.rpc.Capacity(ctx, connect.NewRequest(capacityQuestionToProto(q)))
	if err != nil {
		return nil, wire.FromConnectError(err)
	}
	var out []Capacity
	for _, m := range answer.Msg.GetCapacities() {
		out = append(out, capacityFromProto(m))
	}
	return out, nil
}
