package cgroup

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
)

// trigger sets a trigger on the group, or returns nil where there is no v2 hierarchy.
func trigger(t *testing.T, s *Subtree, c *Control) *Trigger {
	t.Helper()
	w, err := c.WatchPressure(Watch{CPU, Some, 100 * time.Millisecond, time.Second})
	if s.h.unified() < 0 {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("without v2: %v", err)
		}
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Pressure of a group under quota rises, because the group waits for its own quota. An idle group
// has none.
func TestPressureOfAGroup(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		g := create(t, s, Limits{})
		c := control(t, g)
		p, err := c.Pressure(CPU)
		if s.h.unified() < 0 {
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("without v2: %v", err)
			}
			return
		}
		if err != nil || p.Some.Avg10 != 0 {
			t.Fatalf("an empty group has pressure %+v, %v", p, err)
		}
		for range 4 {
			shell(t, g, "while :; do :; done")
		}
		if fired := trigger(t, s, c); fired != nil {
			if err := fired.Wait(timeLimit(t)); err != nil {
				t.Errorf("the trigger %+v: %v", fired.Watch(), err)
			}
		}
		eventually(t, "pressure", func() bool {
			p, err := c.Pressure(CPU)
			return err == nil && p.Some.TotalMicros > 0 && p.Some.Avg10 > 0 && p.Some.Avg10 <= 100_00
		})
		for _, what := range []Resource{Memory, IO} {
			if _, err := c.Pressure(what); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Pressure("../x"); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("got %v", err)
		}
	})
}

// Four spinners run in one group on few processors. The trigger of the machine fires too, or,
// without privilege, the wider one.
func TestPressureOfTheMachine(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, what := range []Resource{CPU, Memory, IO} {
		if p, err := MachinePressure("", what); err != nil || p.Some.TotalMicros < 0 {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
	asked := Watch{CPU, Some, 100 * time.Millisecond, time.Second}
	w, err := WatchMachinePressure("", asked)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Watch(); got != asked && got != (Watch{CPU, Some, 200 * time.Millisecond, 2 * time.Second}) {
		t.Errorf("watches %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]Watch{
		"resource": {"disk", Some, time.Second, 2 * time.Second}, "kind": {CPU, "most", time.Second, 2 * time.Second},
		"no stall": {CPU, Some, 0, time.Second}, "stall above window": {CPU, Some, 3 * time.Second, 2 * time.Second},
		"window too long": {CPU, Some, time.Second, 20 * time.Second},
	} {
		if _, err := WatchMachinePressure("", bad); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := MachinePressure(t.TempDir(), CPU); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a kernel without pressure: %v", err)
	}
}

// A blocked Wait ends when its context does.
func TestWaitEndsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	w, err := WatchMachinePressure("", Watch{Memory, Full, 1900 * time.Millisecond, 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// Windows that need a privilege become the same share of the next multiple of two seconds.
func TestWiderWindows(t *testing.T) {
	for _, test := range []struct{ stall, window, wantStall, wantWindow time.Duration }{
		{100 * time.Millisecond, time.Second, 200 * time.Millisecond, 2 * time.Second},
		{200 * time.Millisecond, 2 * time.Second, 200 * time.Millisecond, 2 * time.Second},
		{300 * time.Millisecond, 3 * time.Second, 400 * time.Millisecond, 4 * time.Second},
	} {
		w := Watch{CPU, Some, test.stall, test.window}
		if got := w.widen(); got.Stall != test.wantStall || got.Window != test.wantWindow {
			t.Errorf("%+v is widened to %+v", w, got)
		}
	}
}
