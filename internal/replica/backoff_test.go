package replica

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// The pause doubles from the least to the most, and half of it is random. So gateways do not all
// come back at once (gateways.md section 6, item 3).
func TestBackoffDoublesAndIsJittered(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		var pauses []time.Duration
		var at []time.Time
		ctx, cancel := context.WithCancel(t.Context())
		f := newFollower(FollowerConfig{
			Gateway: "g", Leader: "unix:/nobody", MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second,
			Events: FollowerEvents{Disconnected: func(err error, pause time.Duration) {
				if err == nil {
					t.Error("no reason is given")
				}
				pauses, at = append(pauses, pause), append(at, time.Now())
				if len(pauses) == 50 {
					cancel()
				}
			}},
		}, func(context.Context, string) (*transport.ConnClient, error) {
			return nil, errors.New("no route to host")
		})
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		different := map[time.Duration]bool{}
		for i, pause := range pauses {
			limit := min(100*time.Millisecond<<min(i, 10), time.Second)
			if pause < limit/2 || pause > limit {
				t.Errorf("pause %d is %s, want between %s and %s", i, pause, limit/2, limit)
			}
			if i > 0 && at[i].Sub(at[i-1]) != pauses[i-1] {
				t.Errorf("pause %d took %s, not %s", i-1, at[i].Sub(at[i-1]), pauses[i-1])
			}
			different[pause] = true
		}
		if len(different) < 10 {
			t.Errorf("only %d different pauses", len(different))
		}
	})
}

// A leader that takes the connection and then says nothing is given up.
func TestSilentLeaderIsGivenUp(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		network := newFakeNetwork(t)
		network.lose(true)
		f := newFollower(FollowerConfig{
			Gateway: "g", Leader: "unix:/silent",
			Events: FollowerEvents{Disconnected: func(err error, _ time.Duration) {
				if !errors.Is(err, errSilent) {
					t.Errorf("the reason given is %v", err)
				}
				cancel()
			}},
		}, network.dial)
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != helloTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// Random numbers that are as large as they may be: the longest pauses.
func largest(n int64) int64 { return n - 1 }

// While nobody listens the pause stays short, because such an attempt costs the leader nothing.
// When the port answers again the pauses begin anew.
func TestAPortThatAnswersAgainIsTriedSoon(t *testing.T) {
	r := newRedial(DefaultMinBackoff, DefaultMaxBackoff)
	closed := &plimsoll.Error{Op: "dial", Err: syscall.ECONNREFUSED}
	refused := plimsoll.Errorf(plimsoll.CodeUnavailable, "loads the active state")
	for i, want := range []struct {
		lived bool
		err   error
		pause time.Duration
	}{
		{true, errLost, 50 * time.Millisecond},
		{false, closed, 50 * time.Millisecond},
		{false, closed, 100 * time.Millisecond},
		{false, closed, 200 * time.Millisecond},
		{false, closed, 250 * time.Millisecond},
		{false, closed, 250 * time.Millisecond},
		{false, refused, 50 * time.Millisecond},
		{false, refused, 100 * time.Millisecond},
		{false, refused, 200 * time.Millisecond},
		{false, refused, 400 * time.Millisecond},
		{false, refused, 800 * time.Millisecond},
		{false, refused, time.Second},
		{false, refused, time.Second},
		{false, closed, 50 * time.Millisecond},
	} {
		if pause := r.after(want.lived, want.err, largest); pause != want.pause {
			t.Errorf("failure %d: the pause is %s, want %s", i, pause, want.pause)
		}
	}
}
