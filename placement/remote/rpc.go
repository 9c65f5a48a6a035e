package remote

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// DefaultDeadline is how long a handler works on a batch.
const DefaultDeadline = 30 * time.Second

// bounds are those of a request and of an answer. A batch has many servers with many facts each.
var bounds = wire.Bounds{Bytes: MaxBody, Decoded: 16 * MaxBody}

// Serving says how a handler serves an evaluator.
type Serving struct {
	Deadline time.Duration // for a batch; 0: DefaultDeadline; a caller may allow less
	Failed   func(error)   // is told of errors whose text does not go to callers; nil: nobody is
}

// NewHandler serves an evaluator as plimsoll.v1.PlacementService: with Connect, gRPC and gRPC-Web, over HTTP/1.1 and HTTP/2. It returns
// the path under which a mux has to put the handler.
func NewHandler(e Evaluator, s Serving) (path string, handler http.Handler) {
	if s.Deadline <= 0 {
		s.Deadline = DefaultDeadline
	}
	return plimsollv1connect.NewPlacementServiceHandler(&service{e, s}, wire.Bounded(bounds), connect.WithSendMaxBytes(MaxBody))
}

type service struct {
	evaluator Evaluator
	serving   Serving
}

// Evaluate is part of plimsollv1connect.PlacementServiceHandler.
func (s *service) Evaluate(ctx context.Context, call *connect.Request[pb.EvaluateRequest]) (*connect.Response[pb.EvaluateResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, s.serving.Deadline)
	defer cancel()
	b, err := batchFromProto(call.Msg)
	if err != nil {
		return nil, wire.ConnectError(err)
	}
	e, err := s.evaluator.Evaluate(ctx, b)
	if err != nil {
		if s.serving.Failed != nil && plimsoll.CodeOf(err) == plimsoll.CodeInternal && ctx.Err() == nil {
			s.serving.Failed(err)
		}
		return nil, wire.ConnectError(err)
	}
	return connect.NewResponse(evaluationToProto(e)), nil
}

// Client is an evaluator in another process.
type Client struct {
	rpc plimsollv1connect.PlacementServiceClient
}

// NewClient returns an evaluator that calls the handler at a base URL, such as http://127.0.0.1:9090. Time is bounded by the contexts
// of the calls.
func NewClient(client connect.HTTPClient, url string) *Client {
	return &Client{plimsollv1connect.NewPlacementServiceClient(client, url, wire.BoundedClient(bounds), connect.WithSendMaxBytes(MaxBody))}
}

// Evaluate has a batch evaluated. It is not tried again.
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
