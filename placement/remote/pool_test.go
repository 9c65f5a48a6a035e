package remote_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

func mustPool(t testing.TB, o remote.Options) *remote.Pool {
	t.Helper()
	p, err := remote.NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sources makes a source of a function for instances.
func source(f func(ctx context.Context, server string) ([]placement.Instance, error)) remote.Source {
	return remote.Source{Instances: f}
}

// Servers are loaded as many at a time as the pool allows, and each answer is that of its own
// server.
func TestLoadsRunInParallel(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		var now, most atomic.Int32
		load, err := remote.Bound(func(_ context.Context, server string) ([]placement.Instance, error) {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Second)
			now.Add(-1)
			return []placement.Instance{{ID: "of " + server}}, nil
		}, remote.Options{Parallel: 3})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		servers := strings.Split("a b c d e f g", " ")
		for i, got := range load(servers) {
			if got.Err != nil || len(got.Instances) != 1 || got.Instances[0].ID != "of "+servers[i] {
				t.Errorf("%s: %+v", servers[i], got)
			}
		}
		if took := time.Since(start); took != 3*time.Second || most.Load() != 3 {
			t.Errorf("seven loads of a second took %s, at most %d at a time", took, most.Load())
		}
	})
}

// A call that does not heed its context is bounded: its server has an error when the time is over.
// No more calls than the bound go on after their time; beyond it calls fail at once. When they
// return the pool is as before, and Wait waits for that.
func TestAHangingLoadIsBounded(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		var under atomic.Int32
		p := mustPool(t, remote.Options{Parallel: 2, Timeout: time.Second, Late: 1})
		l := p.Loader(t.Context(), source(func(context.Context, string) ([]placement.Instance, error) {
			under.Add(1)
			defer under.Add(-1)
			<-release
			return nil, nil
		}))
		start := time.Now()
		codes := map[plimsoll.Code]int{}
		for _, got := range l.Batch(make([]string, 10)) {
			codes[plimsoll.CodeOf(got.Err)]++
		}
		if codes[plimsoll.CodeDeadline] != 3 || codes[plimsoll.CodeExhausted] != 7 || under.Load() != 3 {
			t.Errorf("ten loads ended as %v, and %d go on", codes, under.Load())
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("ten loads that hang took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "wait for 3 calls") {
			t.Errorf("Wait while they hang: %v", err)
		}
		close(release)
		synctest.Wait()
		if got := l.Batch([]string{"a"}); got[0].Err != nil {
			t.Errorf("after they returned: %v", got[0].Err)
		}
		if err := p.Wait(t.Context()); err != nil {
			t.Errorf("Wait after they returned: %v", err)
		}
	})
}

// A placement over a source that hangs ends: the servers whose instances did not come in time are
// left out, with the reason, and another one is chosen.
func TestAPlacementOverAHangingSourceEnds(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		p := mustPool(t, remote.Options{Timeout: time.Second})
		f := placement.NewFleet(placement.NewNames())
		for _, id := range []string{"hangs", "answers"} {
			s := placement.NewServer(id, plimsoll.Resources{"cpu": 1000})
			f.Add(&s)
		}
		f.Loader = p.Loader(t.Context(), source(func(_ context.Context, server string) ([]placement.Instance, error) {
			if server == "hangs" {
				<-release
			}
			return nil, nil
		}))
		prepared, err := placement.Default().Prepare(f, &placement.Request{Resources: plimsoll.Resources{"cpu": 1}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		c, steps := placement.NewPlacer(f, rand.NewPCG(1, 2)).PlaceRecorded(prepared, 0)
		i := slices.IndexFunc(steps, func(s placement.Step) bool { return s.Dropped > 0 })
		const want = "its instances could not be loaded: there was no answer within 1s"
		if c.Slot != 1 || i < 0 || steps[i].Reasons[0].Text != want {
			t.Errorf("slot %d, %+v; want the other one, because %q", c.Slot, steps, want)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %s, want the bound of a call", took)
		}
		close(release)
		if err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A call that heeds its context has the same error as one that does not, and an error of its own
// stays as it is.
func TestLoadErrors(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		p := mustPool(t, remote.Options{Timeout: 3 * time.Second})
		l := p.Loader(t.Context(), source(func(ctx context.Context, server string) ([]placement.Instance, error) {
			if server == "broken" {
				return nil, errors.New("its disk is gone")
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}))
		got := l.Batch([]string{"slow", "broken"})
		if text := got[0].Err.Error(); text != "there was no answer within 3s" {
			t.Errorf("slow: %s", text)
		}
		if text := got[1].Err.Error(); text != "its disk is gone" {
			t.Errorf("broken: %s", text)
		}
	})
}

// When the caller gives up, so do its calls, those that wait for their turn too.
func TestLoadsEndWithTheirContext(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := mustPool(t, remote.Options{Parallel: 1, Timeout: time.Hour})
		l := p.Loader(ctx, source(func(ctx context.Context, _ string) ([]placement.Instance, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}))
		time.AfterFunc(time.Second, cancel)
		for i, got := range l.Batch(make([]string, 5)) {
			if !errors.Is(got.Err, context.Canceled) {
				t.Errorf("load %d: %v", i, got.Err)
			}
		}
	})
}

// Instances are looked up by id within the same bounds.
func TestLookupsAreBounded(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := mustPool(t, remote.Options{Timeout: time.Second}).Loader(t.Context(), remote.Source{
			Instance: func(ctx context.Context, id string) (string, string, error) {
				if id == "lost" {
					<-ctx.Done()
				}
				return "n1", "alice", nil
			},
		})
		if server, owner, err := l.Instance("db"); server != "n1" || owner != "alice" || err != nil {
			t.Errorf("db: %s, %s, %v", server, owner, err)
		}
		if l.Batch != nil {
			t.Error("there is a function for instances that the source does not have")
		}
		start := time.Now()
		if _, _, err := l.Instance("lost"); time.Since(start) > time.Second {
			t.Errorf("lost: %v after %s", err, time.Since(start))
		}
	})
}

// Bounds below zero are refused.
func TestPoolRefusesBadBounds(t *testing.T) {
	for _, o := range []remote.Options{{Parallel: -1}, {Timeout: -1}, {Late: -1}} {
		if _, err := remote.NewPool(o); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
