package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/store"
)

// pollRequests polls for a manager of an owner's jobs. With after 0 it begins the stream.
func pollRequests(name, owner, stream string, after uint64) *pb.Command {
	return &pb.Command{Kind: &pb.Command_PollRequestEvents{PollRequestEvents: &pb.PollRequestEvents{
		Manager: name, Owner: owner, Stream: stream, Begin: after == 0, After: after,
	}}}
}

func acknowledgeRequests(name, owner, in string, sequence uint64) *pb.Command {
	return &pb.Command{Kind: &pb.Command_AcknowledgeRequestEvents{
		AcknowledgeRequestEvents: &pb.AcknowledgeRequestEventsRequest{
			Manager: name, Owner: owner, Store: in, Sequence: sequence,
		},
	}}
}

// outline tells the events of an answer as "number cause object reference".
func outline(m *pb.PolledRequestEvents) []string {
	var list []string
	for _, e := range m.GetEvents() {
		list = append(list, fmt.Sprint(e.GetSequence(), " ", plimsoll.RequestCause(e.GetCause()), " ",
			e.GetEvent().GetObject(), " ", e.GetEvent().GetReference()))
	}
	return list
}

// leadTelling is lead with request events on.
func leadTelling(t *testing.T, fs vfs.FS) *leader {
	l := lead(t, Config{}, openStore(t, fs, store.Limits{}))
	l.must(setEvents("requestEventsEnabled", "true"))
	return l
}

// manages begins a stream of a manager and returns the answer.
func (l *leader) manages(name, owner, stream string) *pb.PolledRequestEvents {
	return l.must(pollRequests(name, owner, stream, 0)).GetPollRequestEvents()
}

func (l *leader) requestCount(outcome string) float64 {
	var m dto.Metric
	if err := l.term.metrics.requests.events.WithLabelValues(outcome).Write(&m); err != nil {
		l.t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// Event design, "SHIM events": "REQUEST type with the change type NONE has an application ID set
// and is only sent as an event to the shim. These events must not be made available by any other
// publishers and are stored in a separate ring buffer."
func TestRequestEventsAreSentToResourceManagersAndAreNotMadeAvailableByOthers(t *testing.T) {
	l := leadTelling(t, vfs.NewMem())
	defer l.stop()
	alice, bob, all := "alice", "bob", ""
	for _, owner := range []string{alice, bob, all} {
		if first := l.manages("shim", owner, "s"+owner); len(first.GetEvents()) > 0 || first.GetLost() > 0 {
			t.Errorf("%q has %v before it was registered", owner, outline(first))
		}
	}
	l.must(register("n", 1))
	of := func(id, owner string) *plimsoll.JobSpec {
		spec := job(id, 1)
		spec.Owner = owner
		return spec
	}
	l.must(submit(of("a", alice)))
	l.must(submit(of("b", bob)))
	l.settle()
	for owner, want := range map[string][]string{
		alice: {"1 new_job  a", "2 allocated a.work.0 a"},
		bob:   {"1 new_job  b", "2 allocated b.work.0 b"},
		all:   {"1 new_job  a", "2 allocated a.work.0 a", "3 new_job  b", "4 allocated b.work.0 b"},
	} {
		if got := outline(l.manages("shim", owner, "again")); !slices.Equal(got, want) {
			t.Errorf("the manager of %q was sent %q, want %q", owner, got, want)
		}
	}
	view := l.Latest().Events()
	low, high, _ := view.Range()
	err := view.Batch(low, high-low+1, func(_ uint64, e *plimsoll.Event) bool {
		if e.Type == plimsoll.EventRequest && e.Change == plimsoll.ChangeNone {
			t.Errorf("the ring, from which REST and streams are answered, has %+v", e)
		}
		return true
	})
	if err != nil || high-low < 5 {
		t.Errorf("events %d to %d, %v", low, high, err)
	}
}

// Event design: "After the event is sent to the shim the reference to the event in the buffer is
// cleared." A crash of the shim would lose what it was sent, so it is cleared once the manager has
// acknowledged it. A stream that begins is sent again what was not.
func TestAnEventIsClearedOnceItIsAcknowledgedAndSentAgainBefore(t *testing.T) {
	l := leadTelling(t, vfs.NewMem())
	defer l.stop()
	in := l.manages("shim", "", "first").GetStore()
	l.must(submit(job("a", 1)))
	l.must(submit(job("b", 1)))
	l.must(submit(job("c", 1)))
	polled := l.must(pollRequests("shim", "", "first", 2)).GetPollRequestEvents()
	if got := outline(polled); !slices.Equal(got, []string{"3 new_job  c"}) || polled.GetLost() != 0 {
		t.Errorf("behind the second event come %q, and %d are lost", got, polled.GetLost())
	}
	if kept := l.must(acknowledgeRequests("shim", "", in, 1)).GetAcknowledgeRequestEvents().GetKept(); kept != 2 {
		t.Errorf("%d events are kept, want 2", kept)
	}
	again := l.manages("shim", "", "second")
	if got := outline(again); !slices.Equal(got, []string{"2 new_job  b", "3 new_job  c"}) || again.GetLost() != 0 ||
		again.GetStore() != in {
		t.Errorf("the second stream is sent %q of store %q, and %d are lost", got, again.GetStore(), again.GetLost())
	}
	for _, sequence := range []uint64{3, 3, 1} { // it may be repeated, in any order
		if kept := l.must(acknowledgeRequests("shim", "", in, sequence)).GetAcknowledgeRequestEvents().GetKept(); kept != 0 {
			t.Errorf("%d events are kept", kept)
		}
	}
	if got := l.manages("shim", "", "third"); len(got.GetEvents()) > 0 || got.GetLost() > 0 {
		t.Errorf("the third stream is sent %q", outline(got))
	}
	for _, c := range []struct {
		cmd  *pb.Command
		code plimsoll.Code
		has  string
	}{
		{acknowledgeRequests("shim", "", in, 4), plimsoll.CodeInvalid, "sequence: is 4"},
		{acknowledgeRequests("shim", "", "other", 1), plimsoll.CodeStale, "follow the events anew"},
		{acknowledgeRequests("nobody", "", in, 1), plimsoll.CodeStale, "nobody"},
		{pollRequests("shim", "", "first", 3), plimsoll.CodeConflict, "a name of its own"},
		{pollRequests("nobody", "", "first", 3), plimsoll.CodeStale, "follow the events anew"},
	} {
		if _, err := l.Do(t.Context(), c.cmd); plimsoll.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.has) {
			t.Errorf("%v: %v", c.cmd, err)
		}
	}
	if n := l.requestCount("acknowledged"); n != 3 {
		t.Errorf("%v events were acknowledged", n)
	}
}

// Event design, "Configuration": requestStoreCapacity is the size of the store. When it is full the
// oldest gives way, which is counted and told. The setting holds at once.
func TestTheOldestGiveWayInAFullStoreWhoseSizeIsLive(t *testing.T) {
	l := leadTelling(t, vfs.NewMem())
	defer l.stop()
	l.must(setEvents("requestStoreCapacity", "3"))
	l.manages("shim", "", "first")
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		l.must(submit(job(id, 1)))
	}
	polled := l.must(pollRequests("shim", "", "first", 1)).GetPollRequestEvents()
	want := []string{"3 new_job  c", "4 new_job  d", "5 new_job  e"}
	if got := outline(polled); polled.GetLost() != 1 || !slices.Equal(got, want) {
		t.Errorf("%q, and %d are lost", got, polled.GetLost())
	}
	l.must(setEvents("requestStoreCapacity", "1"))
	polled = l.manages("shim", "", "second")
	if got := outline(polled); polled.GetLost() != 4 || !slices.Equal(got, []string{"5 new_job  e"}) {
		t.Errorf("%q, and %d are lost", got, polled.GetLost())
	}
	l.must(setEvents("requestStoreCapacity", "10"))
	l.must(submit(job("f", 1)))
	if got := outline(l.manages("shim", "", "third")); !slices.Equal(got, []string{"5 new_job  e", "6 new_job  f"}) {
		t.Errorf("with more room: %q", got)
	}
	if n := l.requestCount("dropped"); n != 4 || l.term.metrics.events.notStored.Load() != 4 {
		t.Errorf("%v events were dropped, %d not stored", n, l.term.metrics.events.notStored.Load())
	}
}

// Event design: the default of requestEventsEnabled is false, and "setting a size of 0 effectively
// turns off the request event system". Nothing is kept then, and managers are told at once.
func TestNothingIsKeptWhileRequestEventsAreOff(t *testing.T) {
	for name, value := range map[string][2]string{
		"requestEventsEnabled": {"false", "true"}, "requestStoreCapacity": {"0", "10"},
	} {
		t.Run(name, func(t *testing.T) {
			l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
			defer l.stop()
			off := func(what string, err error) {
				if plimsoll.CodeOf(err) != plimsoll.CodeConflict ||
					!strings.Contains(err.Error(), "requestEventsEnabled to true") {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, err := l.Do(t.Context(), pollRequests("shim", "", "first", 0))
			off("by default", err)
			l.must(setEvents("requestEventsEnabled", "true"))
			in := l.manages("shim", "", "first").GetStore()
			waiting := make(chan error, 1)
			go func() {
				_, err := l.Do(t.Context(), pollRequests("shim", "", "first", 1))
				waiting <- err
			}()
			l.must(submit(job("a", 1)))
			if err := <-waiting; err != nil { // answered by the event of a
				t.Error(err)
			}
			go func() {
				_, err := l.Do(t.Context(), pollRequests("shim", "", "first", 1))
				waiting <- err
			}()
			l.must(setEvents(name, value[0]))
			off("for a poll that waits, or that comes then", <-waiting)
			l.must(submit(job("b", 1)))
			l.must(setEvents(name, value[1]))
			if got := l.manages("shim", "", "second"); len(got.GetEvents()) > 0 || got.GetStore() == in {
				t.Errorf("what happened while it was off is sent: %q of store %q", outline(got), got.GetStore())
			}
		})
	}
}

// The store is in memory. Another leader has another one. So a manager knows that all events are
// lost that it has not acknowledged.
func TestAnotherLeaderHasAnotherStore(t *testing.T) {
	fs := vfs.NewMem()
	l := leadTelling(t, fs)
	in := l.manages("shim", "", "first").GetStore()
	l.must(submit(job("a", 1)))
	l.stop()
	l = lead(t, Config{}, openStore(t, fs, store.Limits{}))
	defer l.stop()
	_, err := l.Do(t.Context(), acknowledgeRequests("shim", "", in, 1))
	if plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Errorf("an event of the former leader is acknowledged: %v", err)
	}
	now := l.manages("shim", "", "first")
	if now.GetStore() == in || len(now.GetEvents()) > 0 {
		t.Errorf("%q of store %q, which was %q", outline(now), now.GetStore(), in)
	}
}

// storeOf makes a store by itself, with room for so many events of each manager.
func storeOf(capacity uint32) *requestStore {
	settings := plimsoll.DefaultEventSettings()
	settings.RequestEventsEnabled, settings.RequestStoreCapacity = true, capacity
	return newRequestStore(&settings, newMetrics(newStatus(), func() uint64 { return 0 }))
}

// polls sends a poll, and returns where its answer will be.
func polls(s *requestStore, cmd *pb.Command) <-chan error {
	answers := make(chan error, 1)
	s.poll(cmd.GetPollRequestEvents(), func(_ *pb.Reply, err error) { answers <- err })
	return answers
}

// registered registers a manager of an owner's jobs by its first poll.
func registered(t *testing.T, s *requestStore, owner string) {
	t.Helper()
	if err := <-polls(s, pollRequests("shim", owner, "s", 0)); err != nil {
		t.Fatal(err)
	}
}

// takes gives the store n events of alice, with messages of some bytes.
func takes(s *requestStore, n, bytes int) {
	var b engine.Batch
	for range n {
		e := plimsoll.RequestEvent{Cause: plimsoll.CauseNewJob, Owner: "alice"}
		e.Event.Message = strings.Repeat("x", bytes)
		b.Changes.Requests = append(b.Changes.Requests, e)
	}
	s.take(&b)
}

// A manager that reads nothing costs the leader a bounded number of bytes and nobody any time: to
// keep an event never waits.
func TestASlowOrDeadManagerCostsAtMostItsBytes(t *testing.T) {
	s := storeOf(1_000_000)
	for _, stream := range []string{"slow", "dead"} {
		if err := <-polls(s, pollRequests(stream, "", stream, 0)); err != nil {
			t.Fatal(err)
		}
	}
	dead := polls(s, pollRequests("dead", "", "dead", 1))
	for range 100 {
		takes(s, 1000, 500)
	}
	for name, m := range s.mu.managers {
		sum := 0
		for i := range m.kept {
			sum += m.kept[i].bytes
		}
		if m.bytes > managerBytes || m.bytes != sum || m.last != 100_000 || len(m.kept) < 1000 {
			t.Errorf("%v keeps %d events of %d in %d bytes, counted as %d", name, len(m.kept), m.last, sum, m.bytes)
		}
		if n := len(m.behind(0).events); n == 0 || n > polledBytes/500 {
			t.Errorf("an answer has %d events", n)
		}
	}
	s.answerPolls(time.Now())
	if err := <-dead; err != nil {
		t.Error(err)
	}
}

// A manager that is away for ten minutes is forgotten, and a poll without events is answered after
// five seconds.
func TestAManagerThatIsAwayIsForgotten(t *testing.T) {
	s := storeOf(10)
	now := time.Now()
	registered(t, s, "alice")
	poll := polls(s, pollRequests("shim", "alice", "s", 1))
	s.answerPolls(now.Add(pollWait - time.Second))
	select {
	case err := <-poll:
		t.Error(err, "the poll was answered before its time was over")
	default:
	}
	at := time.Now().Add(pollWait)
	s.answerPolls(at)
	if err := <-poll; err != nil {
		t.Error(err)
	}
	s.answerPolls(at.Add(managerAbsent - time.Second))
	if len(s.mu.managers) != 1 {
		t.Fatal("the manager was forgotten too early")
	}
	takes(s, 2, 1)
	s.answerPolls(at.Add(managerAbsent))
	if len(s.mu.managers)+len(s.mu.byOwner) > 0 {
		t.Error("the manager is still known")
	}
	takes(s, 1, 1)
}

// The managers are bounded, in all and of an owner, and a name that is known always finds room. A
// stream that begins ends the earlier one of its manager.
func TestManagersAreBoundedAndHaveOneStream(t *testing.T) {
	s := storeOf(10)
	full := func(err error) bool { return plimsoll.CodeOf(err) == plimsoll.CodeExhausted }
	for owner := range maxManagers / maxOwnerManagers {
		for i := range maxOwnerManagers {
			cmd := pollRequests(fmt.Sprint("m", i), fmt.Sprint("o", owner), "s", 0)
			if err := <-polls(s, cmd); err != nil {
				t.Fatal(err)
			}
		}
		if owner == 0 {
			err := <-polls(s, pollRequests("more", "o0", "s", 0))
			if !full(err) || !strings.Contains(err.Error(), "same owner") {
				t.Errorf("one more manager of an owner: %v", err)
			}
		}
	}
	if err := <-polls(s, pollRequests("m", "another", "s", 0)); !full(err) {
		t.Errorf("one more manager: %v", err)
	}
	waits := polls(s, pollRequests("m1", "o1", "s", 1))
	if err := <-polls(s, pollRequests("m1", "o1", "other", 0)); err != nil {
		t.Errorf("the known manager begins another stream: %v", err)
	}
	if err := <-waits; plimsoll.CodeOf(err) != plimsoll.CodeConflict {
		t.Errorf("the earlier stream ended with %v", err)
	}
}

// A store that runs answers a poll as soon as there is an event, and ends with its context.
func TestAPollIsAnsweredByTheNextEvent(t *testing.T) {
	s := storeOf(10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx)
	}()
	registered(t, s, "")
	poll := polls(s, pollRequests("shim", "", "s", 1))
	takes(s, 2, 1)
	if err := <-poll; err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
}
