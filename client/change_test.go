package client

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// answering answers each call with the next of some errors, and then well.
func answering(answers ...error) (f unary, calls *int) {
	calls = new(int)
	return func(context.Context, *connect.Request[empty]) (*connect.Response[empty], error) {
		if *calls++; *calls <= len(answers) {
			return nil, answers[*calls-1]
		}
		return connect.NewResponse(&empty{}), nil
	}, calls
}

var (
	errLost     = wire.ConnectError(plimsoll.Errorf(plimsoll.CodeOutcomeUnknown, "the connection to the leader broke"))
	errNoLeader = wire.ConnectError(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"))
	errEnded    = wire.ConnectError(plimsoll.Errorf(plimsoll.CodeConflict, "the job has ended"))
	errCut      = connect.NewError(connect.CodeCanceled, errors.New("http2: stream closed"))
	errNoToken  = wire.ConnectError(plimsoll.Errorf(plimsoll.CodeUnauthenticated, "the token was changed"))
)

// A change is repeated while the server is away, asks to come back, or has not reported the
// outcome.
func TestAChangeIsTriedAgainUntilItsOutcomeIsKnown(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f, calls := answering(errNoLeader, errLost, errCut, errNoLeader)
		if _, err := change(t.Context(), &Client{budget: time.Minute}, f, &empty{}); err != nil || *calls != 5 {
			t.Errorf("%d calls, %v", *calls, err)
		}
	})
}

// Once a call may have had an effect, only an answer to a later call settles the outcome.
func TestTheErrorOfAChangeSaysWhatIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		answers []error
		want    plimsoll.Code
	}{
		"never reached": {
			[]error{errNoLeader, errNoLeader, errNoLeader, errNoLeader}, plimsoll.CodeUnavailable,
		},
		"lost": {[]error{errLost, errLost, errLost, errLost}, plimsoll.CodeOutcomeUnknown},
		"cut":  {[]error{errCut, errCut, errCut, errCut}, plimsoll.CodeOutcomeUnknown},
		"lost, then no leader": {
			[]error{errLost, errNoLeader, errNoLeader, errNoLeader}, plimsoll.CodeOutcomeUnknown,
		},
		"lost, then shut out":       {[]error{errLost, errNoToken}, plimsoll.CodeOutcomeUnknown},
		"lost, then refused":        {[]error{errLost, errEnded}, plimsoll.CodeConflict},
		"refused":                   {[]error{errEnded}, plimsoll.CodeConflict},
		"no leader, then shut out":  {[]error{errNoLeader, errNoToken}, plimsoll.CodeUnauthenticated},
		"cut, then lost, then done": {[]error{errCut, errLost}, 0},
	} {
		testrun.Bubble(t, func(t *testing.T) {
			f, _ := answering(test.answers...)
			// 100 ms are three or four calls: the delays grow from 25 to 50 ms.
			_, err := change(t.Context(), &Client{budget: 100 * time.Millisecond}, f, &empty{})
			if test.want == 0 && err == nil {
				return
			}
			if plimsoll.CodeOf(err) != test.want {
				t.Errorf("%s: %v of code %s, want %s", name, err, plimsoll.CodeOf(err), test.want)
			}
		})
	}
}

// A caller that gives up in the middle is told that the outcome is not known. A caller that has
// given up before is told that nothing was sent.
func TestAChangeThatItsCallerGivesUp(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := func(ctx context.Context, _ *connect.Request[empty]) (*connect.Response[empty], error) {
			cancel()
			<-ctx.Done()
			return nil, connect.NewError(connect.CodeCanceled, ctx.Err())
		}
		_, err := change(ctx, &Client{budget: time.Minute}, f, &empty{})
		if plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown || !errors.Is(err, context.Canceled) {
			t.Errorf("in the middle: %v", err)
		}
		never, calls := answering()
		if _, err := change(
			ctx, &Client{}, never, &empty{},
		); plimsoll.CodeOf(err) != plimsoll.CodeCanceled || *calls != 0 {
			t.Errorf("before: %d calls, %v", *calls, err)
		}
	})
}

// tokens is a gateway that answers every other change, and cuts the connection of the rest. It
// notes their tokens.
type tokens struct {
	plimsollv1connect.UnimplementedJobServiceHandler
	plimsollv1connect.UnimplementedNodeServiceHandler
	plimsollv1connect.UnimplementedQueueServiceHandler
	plimsollv1connect.UnimplementedPolicyServiceHandler
	plimsollv1connect.UnimplementedEventServiceHandler
	seen []string
}

func note[Req interface{ GetToken() string }, Res any](g *tokens, m Req, res *Res) (*connect.Response[Res], error) {
	if g.seen = append(g.seen, m.GetToken()); len(g.seen)%2 == 1 {
		panic(http.ErrAbortHandler)
	}
	return connect.NewResponse(res), nil
}

func (g *tokens) SubmitJob(
	_ context.Context, r *connect.Request[pb.SubmitJobRequest],
) (*connect.Response[pb.SubmitJobResponse], error) {
	return note(g, r.Msg.GetSpec(), &pb.SubmitJobResponse{})
}

func (g *tokens) KillJob(
	_ context.Context, r *connect.Request[pb.KillJobRequest],
) (*connect.Response[pb.KillJobResponse], error) {
	return note(g, r.Msg, &pb.KillJobResponse{})
}

func (g *tokens) ScaleJob(
	_ context.Context, r *connect.Request[pb.ScaleJobRequest],
) (*connect.Response[pb.ScaleJobResponse], error) {
	return note(g, r.Msg, &pb.ScaleJobResponse{})
}

func (g *tokens) SetNodeMode(
	_ context.Context, r *connect.Request[pb.SetNodeModeRequest],
) (*connect.Response[pb.SetNodeModeResponse], error) {
	return note(g, r.Msg, &pb.SetNodeModeResponse{})
}

func (g *tokens) RemoveNode(
	_ context.Context, r *connect.Request[pb.RemoveNodeRequest],
) (*connect.Response[pb.RemoveNodeResponse], error) {
	return note(g, r.Msg, &pb.RemoveNodeResponse{})
}

func (g *tokens) SetQueueConfig(
	_ context.Context, r *connect.Request[pb.SetQueueConfigRequest],
) (*connect.Response[pb.SetQueueConfigResponse], error) {
	return note(g, r.Msg, &pb.SetQueueConfigResponse{})
}

func (g *tokens) ApplyPolicies(
	_ context.Context, r *connect.Request[pb.ApplyPoliciesRequest],
) (*connect.Response[pb.ApplyPoliciesResponse], error) {
	return note(g, r.Msg, &pb.ApplyPoliciesResponse{})
}

func (g *tokens) SetEventSettings(
	_ context.Context, r *connect.Request[pb.SetEventSettingsRequest],
) (*connect.Response[pb.SetEventSettingsResponse], error) {
	return note(g, r.Msg, &pb.SetEventSettingsResponse{})
}

func (g *tokens) RemoveHistorian(
	_ context.Context, r *connect.Request[pb.RemoveHistorianRequest],
) (*connect.Response[pb.RemoveHistorianResponse], error) {
	return note(g, r.Msg, &pb.RemoveHistorianResponse{})
}

func (g *tokens) DeletePolicy(
	_ context.Context, r *connect.Request[pb.DeletePolicyRequest],
) (*connect.Response[pb.DeletePolicyResponse], error) {
	return note(g, r.Msg, &pb.DeletePolicyResponse{})
}

// GetJob breaks off.
func (*tokens) GetJob(
	context.Context, *connect.Request[pb.GetJobRequest],
) (*connect.Response[pb.GetJobResponse], error) {
	panic(http.ErrAbortHandler)
}

func (g *tokens) serve(t *testing.T) (address string) {
	t.Helper()
	address = "unix:" + filepath.Join(t.TempDir(), "s")
	l, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewJobServiceHandler(g))
	mux.Handle(plimsollv1connect.NewNodeServiceHandler(g))
	mux.Handle(plimsollv1connect.NewQueueServiceHandler(g))
	mux.Handle(plimsollv1connect.NewPolicyServiceHandler(g))
	mux.Handle(plimsollv1connect.NewEventServiceHandler(g))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- transport.Serve(ctx, l, mux, transport.ServeConfig{}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return address
}

// Every call that changes something is repeated with the token of its first attempt when the
// connection is cut. The next call has another token.
func TestEveryChangeCarriesItsTokenOverACutConnection(t *testing.T) {
	g := &tokens{}
	c, err := New(Config{Server: g.serve(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ref := plimsoll.PolicyRef{Kind: plimsoll.PolicyAction, Name: "a"}
	used := map[string]bool{}
	for name, do := range map[string]func(ctx context.Context) error{
		"submit": func(
			ctx context.Context,
		) error {
			_, err := c.SubmitJob(ctx, plimsoll.JobSpec{ID: "j"})
			return err
		},
		"kill":  func(ctx context.Context) error { _, err := c.KillJob(ctx, "j", ""); return err },
		"scale": func(ctx context.Context) error { _, err := c.ScaleJob(ctx, "j", "", 5); return err },
		"mode": func(
			ctx context.Context,
		) error {
			_, err := c.SetNodeMode(ctx, "n", plimsoll.NodeCordoned)
			return err
		},
		"remove":    func(ctx context.Context) error { return c.RemoveNode(ctx, "n") },
		"queues":    func(ctx context.Context) error { return c.SetQueueConfig(ctx, plimsoll.DefaultQueues()) },
		"policies":  func(ctx context.Context) error { _, err := c.ApplyPolicies(ctx, nil, false); return err },
		"delete":    func(ctx context.Context) error { return c.DeletePolicy(ctx, ref) },
		"historian": func(ctx context.Context) error { return c.RemoveHistorian(ctx, "h") },
		"events": func(ctx context.Context) error {
			_, err := c.SetEventSettings(ctx, map[string]string{"ringBufferAge": "1h"})
			return err
		},
	} {
		g.seen = nil
		err := do(t.Context())
		if err != nil || len(g.seen) != 2 || g.seen[0] == "" || g.seen[0] != g.seen[1] || used[g.seen[0]] {
			t.Errorf("%s: tokens %q, %v; want one of its own, twice", name, g.seen, err)
		}
		used[g.seen[0]] = true
		g.seen = nil
		err = do(WithToken(t.Context(), "mine"))
		if err != nil || len(g.seen) != 2 || g.seen[0] != "mine" || g.seen[1] != "mine" {
			t.Errorf("%s with a token of the caller: tokens %q, %v", name, g.seen, err)
		}
	}
}

// A cut connection reads as unavailable for a call that changes nothing, and as an unknown outcome
// for a change; never as canceled.
func TestACutConnectionDoesNotReadCanceled(t *testing.T) {
	c, err := New(Config{Server: (&tokens{}).serve(t), RetryBudget: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Job(t.Context(), "j"); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a read: %v", err)
	}
	if _, err := c.KillJob(t.Context(), "j", ""); plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown {
		t.Errorf("a kill: %v", err)
	}
	none, err := New(Config{Server: "unix:" + t.TempDir() + "/none", RetryBudget: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if _, err := none.KillJob(t.Context(), "j", ""); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a kill at no server: %v", err)
	}
}
