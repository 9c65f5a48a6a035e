package historian

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// questionTimeout bounds the time of one question.
	questionTimeout = 30 * time.Second
	// answerTimeout bounds a request until the last byte of its answer.
	answerTimeout   = questionTimeout + 30*time.Second
	maxRequestBytes = 64 << 10
	compressFrom    = 1400 // bytes of an answer
)

// service answers questions. Each one holds a slot.
type service struct {
	h     *Historian
	slots chan struct{}
}

var _ plimsollv1connect.HistoryServiceHandler = (*service)(nil)

// handler returns the handler of HistoryService.
func (s *service) handler() http.Handler {
	_, calls := plimsollv1connect.NewHistoryServiceHandler(s, wire.Bounded(wire.RequestBounds(maxRequestBytes)),
		connect.WithInterceptors(connect.UnaryInterceptorFunc(s.guard)), connect.WithCompressMinBytes(compressFrom))
	return calls
}

// guard catches panics, gives errors their code and counts outcomes.
func (s *service) guard(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (resp connect.AnyResponse, err error) {
		call := req.Spec().Procedure[strings.LastIndexByte(req.Spec().Procedure, '/')+1:]
		err = s.answer(ctx, call, func(ctx context.Context) (err error) {
			if m, ok := req.Any().(proto.Message); ok {
				if err := checkRequest(m); err != nil {
					return err
				}
			}
			resp, err = next(ctx, req)
			return err
		})
		if err != nil {
			return nil, wire.ConnectError(err)
		}
		return resp, nil
	}
}

// checkRequest fails for a field or an enumeration number that this version does not know: a
// criterion that was ignored would choose too much.
func checkRequest(m proto.Message) error {
	if unknown := m.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		return plimsoll.Invalid(fmt.Sprintf("field %d", number),
			"of %s is not known to this historian, which may be older than the caller; leave it out, or ask a newer one",
			m.ProtoReflect().Descriptor().Name())
	}
	return wire.CheckEnums(m)
}

// answer answers a question within the bounds, and counts it. The error is for its caller.
func (s *service) answer(ctx context.Context, call string, question func(ctx context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		s.h.metrics.count(call, err)
		code := plimsoll.CodeOf(err)
		fault := err != nil && (code == plimsoll.CodeInternal || code == plimsoll.CodeCorrupt)
		if fault && s.h.cfg.Events.Fault != nil {
			s.h.cfg.Events.Fault(call, err)
		}
	}()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		s.h.metrics.refuse(boundQuestions)
		return plimsoll.Errorf(plimsoll.CodeExhausted,
			"the history has %d questions under way, as many as it may; try again", cap(s.slots))
	}
	bounded, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	err = question(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return plimsoll.Errorf(plimsoll.CodeDeadline, "the question takes longer than %s; ask for less at a time",
			questionTimeout)
	}
	return err
}

// Calls returns the handler of HistoryService, for a process that listens itself.
func (h *Historian) Calls() http.Handler { return h.calls }

// Plain returns the handler of the paths below PlainRoot, for a process that listens itself.
func (h *Historian) Plain() http.Handler { return h.plain }

// routes returns the table of everything served on Config.Listen.
func (h *Historian) routes() http.Handler {
	mux := http.NewServeMux()
	timed := func(h http.Handler) http.Handler {
		return transport.TimeAnswers(transport.AnswerConfig{Total: answerTimeout}, h)
	}
	mux.Handle("/"+plimsollv1connect.HistoryServiceName+"/", timed(h.calls))
	mux.Handle(PlainRoot, timed(h.plain))
	mux.Handle("/healthz", timed(http.HandlerFunc(h.health)))
	mux.Handle("/readyz", timed(http.HandlerFunc(h.ready)))
	if h.metrics.registry != nil {
		mux.Handle("/metrics", timed(h.metrics.handler()))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, plimsoll.Errorf(plimsoll.CodeNotFound,
			"a historian has nothing at %.80s; there are %s, /healthz, /readyz, /metrics and %s; jobs are asked for at a gateway",
			r.URL.Path, PlainRoot, plimsollv1connect.HistoryServiceName))
	})
	return mux
}

// GetTimeline implements HistoryService.
func (s *service) GetTimeline(
	ctx context.Context, req *connect.Request[pb.GetTimelineRequest],
) (*connect.Response[pb.GetTimelineResponse], error) {
	m, err := s.h.timeline(ctx, req.Msg)
	return respond(m, err)
}

// GetUsage implements HistoryService.
func (s *service) GetUsage(
	ctx context.Context, req *connect.Request[pb.GetUsageRequest],
) (*connect.Response[pb.GetUsageResponse], error) {
	m, err := s.h.usage(ctx, req.Msg)
	return respond(m, err)
}

// ListHistoryJobs implements HistoryService.
func (s *service) ListHistoryJobs(
	ctx context.Context, req *connect.Request[pb.ListHistoryJobsRequest],
) (*connect.Response[pb.ListHistoryJobsResponse], error) {
	m, err := s.h.jobs(ctx, req.Msg)
	return respond(m, err)
}

// GetClusterAt implements HistoryService.
func (s *service) GetClusterAt(
	ctx context.Context, req *connect.Request[pb.GetClusterAtRequest],
) (*connect.Response[pb.GetClusterAtResponse], error) {
	m, err := s.h.clusterAt(ctx, req.Msg)
	return respond(m, err)
}

// GetHistoryStatus implements HistoryService.
func (s *service) GetHistoryStatus(
	ctx context.Context, req *connect.Request[pb.GetHistoryStatusRequest],
) (*connect.Response[pb.GetHistoryStatusResponse], error) {
	m, err := s.h.status(ctx, req.Msg)
	return respond(m, err)
}

func respond[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}
