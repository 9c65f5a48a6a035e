package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// away is a coordinator, a gateway and a historian, each a process.
type away struct {
	*site
	coordinator string // its address
	listener    string // of the historian
	historian   *daemon
	made        int // jobs
	caller      *client.Client
}

// newAway starts a cluster with a small ring.
func newAway(t *testing.T) *away {
	t.Helper()
	s := newSite(t)
	leader := strings.Replace(freePorts(t, 1)[0], "localhost", "127.0.0.1", 1)
	a := &away{site: s, coordinator: leader, listener: "unix:" + s.path("historian.sock")}
	start(t, "coordinator", "--data", s.path("store"), "--listen", a.coordinator).says("msg=leading")
	start(t, "gateway", "--data", s.path("gateway"), "--leader", a.coordinator, "--listen", s.address).
		says("following the leader")
	a.caller = s.client()
	a.set(map[string]string{"ringBufferCapacity": "20"})
	a.begin()
	return a
}

func (a *away) set(values map[string]string) {
	a.t.Helper()
	if _, err := a.caller.SetEventSettings(a.t.Context(), values); err != nil {
		a.t.Fatal(err)
	}
}

// begin starts the historian, which goes on in its file.
func (a *away) begin() {
	a.t.Helper()
	a.historian = start(a.t, "historian", "--data", a.path("historian"), "--name", "h", "--listen", a.listener,
		"--server", a.address)
	a.historian.says("msg=registered|msg=\"registered")
}

// caughtUp waits until the historian has all events and has said so, and returns the next id.
func (a *away) caughtUp() (next uint64) {
	a.t.Helper()
	eventually(a.t, "wait until the historian has told that it has all events", func() error {
		all := a.registered()
		behind, missed := all.Behind(&all.Historians[0])
		if next = all.Next; behind > 0 || missed > 0 {
			return fmt.Errorf("it lacks %d events, and %d are gone", behind, missed)
		}
		return nil
	})
	return next
}

func (a *away) registered() *client.RegisteredHistorians {
	a.t.Helper()
	all, err := a.caller.Historians(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	if len(all.Historians) != 1 || all.Historians[0].Name != "h" {
		a.t.Fatalf("registered are %+v", all.Historians)
	}
	return &all
}

// submit submits a job of so many tasks, which no node takes, with a long id, and kills it. It
// returns when the job has ended.
func (a *away) submit(tasks int32) {
	a.t.Helper()
	a.made++
	id := fmt.Sprintf("job%06d%s", a.made, strings.Repeat(fmt.Sprintf("-%06x", a.made*7919), 12))
	c := a.caller
	_, err := c.SubmitJob(a.t.Context(), plimsoll.JobSpec{ID: id, Groups: []plimsoll.GroupSpec{{
		Name: "main", Count: tasks, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 100},
	}}})
	if err == nil {
		_, err = c.KillJob(a.t.Context(), id, "the test wants events")
	}
	if err != nil {
		a.t.Fatal(err)
	}
	eventually(a.t, "wait for the end of "+id, func() error { // behind it nothing happens
		job, err := c.Job(a.t.Context(), id)
		if err == nil && !job.Status.State.Ended() {
			err = fmt.Errorf("it is %s", job.Status.State)
		}
		return err
	})
}

func (a *away) history() client.HistoryStatus {
	a.t.Helper()
	status, err := a.clientOf(a.listener).HistoryStatus(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	return status
}

// TestAHistorianThatWasAwayLacksNothing: a ring of 20 events wraps many times while the historian
// is stopped. When it is back it has each event, and the ring is small again.
func TestAHistorianThatWasAwayLacksNothing(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	stopped := a.caughtUp()
	a.historian.stop()
	for range 60 {
		a.submit(3)
	}
	all := a.registered()
	if behind, missed := all.Behind(&all.Historians[0]); missed > 0 || behind < 500 || all.Lowest > stopped {
		t.Errorf("%d events from %d on are held back for it, and %d are gone", behind, all.Lowest, missed)
	}
	out, _, code := a.cli("events", "historians")
	if code != 0 || !strings.Contains(out, "GONE UNREAD") || !strings.Contains(out, "\nh  ") {
		t.Errorf("%d: %s", code, out)
	}
	a.begin()
	next := a.caughtUp()
	status := a.history()
	if len(status.Gaps) > 0 || status.Next != next || status.Events != next {
		t.Errorf("the history has %d events up to %d of %d, and the gaps %+v",
			status.Events, status.Next, next, status.Gaps)
	}
	eventually(t, "wait until the ring is small again", func() error {
		if all := a.registered(); all.Next-all.Lowest > 30 {
			return fmt.Errorf("%d events are kept", all.Next-all.Lowest)
		}
		return nil
	})
	if n := metric(t, "http://"+a.coordinator, "plimsoll_coordinator_events_unread_total"); n != 0 {
		t.Errorf("%v events are counted as unread", n)
	}
	if status.Name != "h" || status.Unregistered != "" || status.Registered == nil {
		t.Errorf("the status says %+v", status)
	}
}

// TestAHistorianThatWasAwayForTooLongIsToldWhatItMissed: beyond the bound the oldest events go. The
// history has a gap with the ids of these, and of no others, and the leader has counted them.
func TestAHistorianThatWasAwayForTooLongIsToldWhatItMissed(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	a.set(map[string]string{"ringBufferHeldBytes": "1Mi"})
	stopped := a.caughtUp()
	a.historian.stop()
	var lowest uint64
	for lowest <= stopped {
		if a.submit(1000); a.made > 1000 {
			t.Fatal("no event is gone")
		}
		lowest = a.registered().Lowest
	}
	a.begin()
	next := a.caughtUp()
	status := a.history()
	if len(status.Gaps) != 1 || status.Gaps[0].First != stopped || status.Gaps[0].Next != lowest ||
		status.Next != next || status.Events != next-(lowest-stopped) {
		t.Errorf("the history has %d events up to %d of %d, and the gaps %+v; want one from %d to %d",
			status.Events, status.Next, next, status.Gaps, stopped, lowest)
	}
	counted := metric(t, "http://"+a.coordinator, "plimsoll_coordinator_events_unread_total")
	if n := counted; n != float64(lowest-stopped) {
		t.Errorf("%v events are counted as unread, want %d", n, lowest-stopped)
	}
}
