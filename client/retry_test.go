package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

type empty = emptypb.Empty

type unary func(context.Context, *connect.Request[empty]) (*connect.Response[empty], error)

// failing answers with err until its time comes.
func failing(err error, until time.Duration) (f unary, calls *int) {
	began, calls := time.Now(), new(int)
	return func(context.Context, *connect.Request[empty]) (*connect.Response[empty], error) {
		if *calls++; time.Since(began) < until {
			return nil, wire.ConnectError(err)
		}
		return connect.NewResponse(&empty{}), nil
	}, calls
}

func TestACallIsTriedAgainUntilTheServerIsBack(t *testing.T) {
	for _, code := range []plimsoll.Code{plimsoll.CodeUnavailable, plimsoll.CodeExhausted} {
		testrun.Bubble(t, func(t *testing.T) {
			f, calls := failing(plimsoll.Errorf(code, "come back"), 5*time.Second)
			if _, err := call(t.Context(), &Client{budget: 10 * time.Second}, f, &empty{}); err != nil {
				t.Errorf("%v: %v", code, err)
			}
			if *calls < 5 || *calls > 15 {
				t.Errorf("%v: %d calls in five seconds; the delays do not grow as they should", code, *calls)
			}
		})
	}
}

// The last attempt is made at the end of the budget, whatever the delays before were.
func TestAServerThatIsBackWithinTheBudgetIsFound(t *testing.T) {
	for back := 50 * time.Millisecond; back <= 2*time.Second; back += 50 * time.Millisecond {
		testrun.Bubble(t, func(t *testing.T) {
			f, _ := failing(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"), back)
			if _, err := call(t.Context(), &Client{budget: 2 * time.Second}, f, &empty{}); err != nil {
				t.Errorf("back after %v: %v", back, err)
			}
		})
	}
}

// While a server answers that it has no leader, the call has another budget. One that nobody
// answers keeps its own, and one that is not to be tried again is not.
func TestACallThatIsRefusedForNowIsTriedForLonger(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name           string
		code           plimsoll.Code
		answered       bool
		budget, leader time.Duration
		want           time.Duration
	}{
		{"no leader", plimsoll.CodeUnavailable, true, 2 * second, 10 * second, 10 * second},
		{"no leader, and a longer budget", plimsoll.CodeUnavailable, true, 20 * second, 10 * second, 20 * second},
		{"nobody answers", plimsoll.CodeUnavailable, false, 2 * second, 10 * second, 2 * second},
		{"a bound is reached", plimsoll.CodeExhausted, true, 2 * second, 10 * second, 2 * second},
		{"no attempt is wanted", plimsoll.CodeUnavailable, true, -1, 10 * second, 0},
	} {
		err := wire.ConnectError(plimsoll.Errorf(c.code, "come back"))
		var rpc *connect.Error
		if errors.As(err, &rpc) && c.answered {
			sent := connect.NewWireError(rpc.Code(), rpc.Unwrap())
			for _, d := range rpc.Details() {
				sent.AddDetail(d)
			}
			err = sent
		}
		refused := func(context.Context, *connect.Request[empty]) (*connect.Response[empty], error) { return nil, err }
		user := &Client{budget: c.budget, leader: c.leader}
		for kind, ask := range map[string]func(context.Context) error{
			"a read":   func(ctx context.Context) error { _, err := call(ctx, user, refused, &empty{}); return err },
			"a change": func(ctx context.Context) error { _, err := change(ctx, user, refused, &empty{}); return err },
		} {
			testrun.Bubble(t, func(t *testing.T) {
				began := time.Now()
				if err := ask(t.Context()); plimsoll.CodeOf(err) != c.code {
					t.Errorf("%s, %s: %v", c.name, kind, err)
				}
				if d := time.Since(began); d != c.want {
					t.Errorf("%s, %s: gave up after %v, want %v", c.name, kind, d, c.want)
				}
			})
		}
	}
}

// A stream that has begun has a budget of its own, and each of its breaks is told once.
func TestAStreamThatHasBegunIsFollowedForLonger(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		away := plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader")
		told := 0
		r := (&Client{budget: 2 * time.Second, follow: time.Minute, broken: func(error) { told++ }}).newRetry()
		for i, want := range []time.Duration{2 * time.Second, time.Minute, time.Minute} {
			began := time.Now()
			for r.wait(t.Context(), away) == nil {
				continue
			}
			if d := time.Since(began); d != want || told != i {
				t.Errorf("gave up after %v, and %d breaks were told; want %v and %d", d, told, want, i)
			}
			r.reset()
		}
	})
}

// A stream that was followed again has the whole budget for its next failure.
func TestASuccessInAStreamRenewsTheBudget(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		away := plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader")
		r := (&Client{budget: 2 * time.Second}).newRetry()
		for range 2 {
			began := time.Now()
			for r.wait(t.Context(), away) == nil {
				continue
			}
			if d := time.Since(began); d != 2*time.Second {
				t.Errorf("gave up after %v", d)
			}
			r.reset()
		}
	})
}

func TestRetriesEndWithTheBudget(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		began := time.Now()
		f, _ := failing(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"), time.Hour)
		_, err := call(t.Context(), &Client{budget: 10 * time.Second}, f, &empty{})
		if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestRetriesEndWithTheContext(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		f, _ := failing(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"), time.Hour)
		if _, err := call(ctx, &Client{budget: time.Minute}, f, &empty{}); err == nil {
			t.Error("no error")
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestWhatWillNotGetBetterIsNotTriedAgain(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		for code := plimsoll.CodeInternal; code <= plimsoll.CodeOutcomeUnknown; code++ {
			switch code {
			case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeOutcomeUnknown:
				continue
			case plimsoll.CodeCanceled, plimsoll.CodeDeadline: // of the server: the caller's context goes on
				continue
			}
			f, calls := failing(plimsoll.Errorf(code, "no"), time.Hour)
			_, err := call(t.Context(), &Client{budget: time.Minute}, f, &empty{})
			if plimsoll.CodeOf(err) != code || *calls != 1 {
				t.Errorf("%v: %d calls, %v", code, *calls, err)
			}
		}
	})
}

func TestANegativeBudgetMeansOneCall(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f, calls := failing(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"), time.Hour)
		_, err := call(t.Context(), &Client{budget: -1}, f, &empty{})
		var e *plimsoll.Error
		if *calls != 1 || !errors.As(err, &e) {
			t.Errorf("%d calls, %v", *calls, err)
		}
	})
}

// The longer time for a missing leader ends with the next success of a stream: what fails later for
// another reason has the usual one.
func TestTheBudgetForAMissingLeaderIsGivenBack(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		r := (&Client{budget: 2 * time.Second, leader: 10 * time.Second}).newRetry()
		r.awaits = true // as failed sets it
		for _, want := range []time.Duration{10 * time.Second, 2 * time.Second} {
			began := time.Now()
			for r.wait(t.Context(), plimsoll.Errorf(plimsoll.CodeUnavailable, "away")) == nil {
				continue
			}
			if d := time.Since(began); d != want {
				t.Errorf("gave up after %v, want %v", d, want)
			}
			r.reset()
		}
	})
}
