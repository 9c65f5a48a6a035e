package replica

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

type refusing struct{}

// RoundTrip fails as a port does that nobody listens on.
func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

// The pause doubles from the least to the most, and half of it is random, so that gateways do not all come back at once
// (gateways.md section 6, item 3).
func TestBackoffDoublesAndIsJittered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		}, &http.Client{Transport: refusing{}}, "http://nobody")
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

type silent struct{}

// RoundTrip takes the request and never answers.
func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A leader that takes the connection and then says nothing is given up.
func TestSilentLeaderIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		f := newFollower(FollowerConfig{
			Gateway: "g", Leader: "unix:/silent",
			Events: FollowerEvents{Disconnected: func(err error, _ time.Duration) {
				if !errors.Is(err, errSilent) {
					t.Errorf("the reason given is %v", err)
				}
				cancel()
			}},
		}, &http.Client{Transport: silent{}}, "http://silent")
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != helloTimeout {
			t.Errorf("it took %s", took)
		}
	})
}
