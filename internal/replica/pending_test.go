package replica

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

func openPending() *pending {
	l := &pending{maxCalls: 3, maxBytes: 1 << 20}
	l.connect()
	return l
}

func mustJoin(t *testing.T, l *pending) *round {
	t.Helper()
	r, err := l.join()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func released(r *round) bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// gateways.md 3.2 O4: a reader is released only by a sync that was sent after it arrived; and one
// sync is under way at a time.
func TestReaderUsesOnlyASyncSentAfterItArrived(t *testing.T) {
	l, snapshot := openPending(), &Snapshot{revision: 1}
	first := mustJoin(t, l)
	if mustJoin(t, l) != first {
		t.Error("readers that come before the sync is sent do not share it")
	}
	sync1 := l.next().GetSync().GetId()
	late := mustJoin(t, l)
	if late == first {
		t.Fatal("a reader that came after the sync was sent waits for it")
	}
	if l.next() != nil {
		t.Error("two syncs are under way")
	}
	if more := l.acknowledge(sync1, snapshot); !more {
		t.Error("the next round is not sent")
	}
	if !released(first) || first.snapshot != snapshot || released(late) {
		t.Error("the acknowledgement releases its own readers and no others")
	}
	sync2 := l.next().GetSync().GetId()
	if sync2 <= sync1 {
		t.Errorf("ids go from %d to %d", sync1, sync2)
	}
	l.acknowledge(sync1, snapshot) // late or made up
	if released(late) {
		t.Error("released by an acknowledgement of another sync")
	}
	l.acknowledge(sync2, snapshot)
	if !released(late) || l.next() != nil {
		t.Error("the second round was not released, or a third was sent for nobody")
	}
}

// gateways.md 3.3.9: what is under way when a stream breaks fails, and no answer of the next stream
// can match it.
func TestBrokenStreamFailsAllThatIsUnderWay(t *testing.T) {
	l := openPending()
	inFlight := mustJoin(t, l)
	oldSync := l.next().GetSync().GetId()
	waiting := mustJoin(t, l)
	sent, err := l.add(submit("a"))
	if err != nil {
		t.Fatal(err)
	}
	oldCommand := l.next().GetCommand().GetId()
	unsent, err := l.add(submit("b"))
	if err != nil {
		t.Fatal(err)
	}
	l.disconnect()
	for _, r := range []*round{inFlight, waiting} {
		if !released(r) || plimsoll.CodeOf(r.err) != plimsoll.CodeUnavailable {
			t.Errorf("a round ended with %v", r.err)
		}
	}
	for c, want := range map[*call]plimsoll.Code{sent: plimsoll.CodeOutcomeUnknown, unsent: plimsoll.CodeUnavailable} {
		<-c.done
		if plimsoll.CodeOf(c.err) != want {
			t.Errorf("a command ended with %v, want %s", c.err, want)
		}
	}
	if _, err := l.join(); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("join without a leader: %v", err)
	}
	if _, err := l.add(submit("c")); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a command without a leader: %v", err)
	}
	l.connect()
	if l.next() != nil {
		t.Error("something of the broken stream is sent on the next")
	}
	r := mustJoin(t, l)
	if id := l.next().GetSync().GetId(); id <= oldSync || id <= oldCommand {
		t.Errorf("id %d was used before", id)
	}
	l.acknowledge(oldSync, nil)
	if released(r) {
		t.Error("released by an acknowledgement of a broken stream")
	}
}

func TestCommandsAreBoundedAndForgotten(t *testing.T) {
	l := openPending()
	var calls []*call
	for range 3 {
		c, err := l.add(submit("a"))
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	if _, err := l.add(submit("a")); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("a fourth command: %v", err)
	}
	if l.drop(calls[0]) {
		t.Error("the first command was not sent")
	}
	if got := l.next().GetCommand().GetId(); got != calls[1].id {
		t.Errorf("command %d is sent, want %d: the first has no caller any more", got, calls[1].id)
	}
	if !l.drop(calls[1]) {
		t.Error("the second command was sent")
	}
	l.answer(&pb.Reply{Id: calls[1].id}) // nobody waits for it
	l.answer(&pb.Reply{Id: calls[2].id, Revision: 9})
	if <-calls[2].done; calls[2].reply.GetRevision() != 9 || len(l.calls) != 0 {
		t.Error("the third command has no answer")
	}
}

// Commands that wait to be sent are bounded by bytes, and a caller that has gone takes none.
func TestCommandsThatWaitAreBoundedByBytes(t *testing.T) {
	l := &pending{maxCalls: 1000, maxBytes: 40_000}
	l.connect()
	var calls []*call
	for {
		c, err := l.add(submit(strings.Repeat("x", 1000)))
		if err != nil {
			if plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), "bytes") {
				t.Errorf("refused with %v", err)
			}
			break
		}
		calls = append(calls, c)
	}
	if len(calls) < 25 || len(calls) > 30 { // three quarters: the rest is for agents
		t.Errorf("%d commands of 1,000 bytes are in 40,000", len(calls))
	}
	report := &pb.Command{Kind: &pb.Command_ReportTasks{ReportTasks: &pb.ReportTasksRequest{Node: "n"}}}
	if _, err := l.add(report); err != nil {
		t.Errorf("an agent's report: %v", err)
	}
	l.drop(calls[0])
	if calls[0].command != nil {
		t.Error("the command of a caller that has gone is kept")
	}
	if _, err := l.add(submit(strings.Repeat("x", 1000))); err != nil {
		t.Errorf("a caller has gone, but %v", err)
	}
	for l.next() != nil {
		continue
	}
	l.drop(calls[1])
	unsent, err := l.add(submit("a"))
	if err != nil {
		t.Fatal(err)
	}
	l.disconnect()
	l.drop(unsent)
	if l.bytes != 0 {
		t.Errorf("nothing waits any more, but %d bytes count", l.bytes)
	}
}

// Users that have all calls under way keep no agent out.
func TestAgentsHaveCallsOfTheirOwn(t *testing.T) {
	l := &pending{maxCalls: 100, maxBytes: 1 << 20}
	l.connect()
	users := 0
	for ; users < 200; users++ {
		if _, err := l.add(submit("a")); err != nil {
			break
		}
	}
	if _, err := l.add(
		&pb.Command{Kind: &pb.Command_NodeLiveness{NodeLiveness: &pb.NodeLiveness{}}},
	); err != nil || users != 75 {
		t.Errorf("after %d commands of users an agent is told %v", users, err)
	}
}

// A command that the leader would refuse is not sent: its refusal ends the stream, with all that
// others have on it.
func TestACommandThatTheLeaderWouldRefuseIsNotSent(t *testing.T) {
	l := openPending()
	l.maxBytes = 1 << 30
	if _, err := l.add(
		submit(strings.Repeat("x", requestBounds.Bytes)),
	); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("one that is too long: %v", err)
	}
	if _, err := l.add(submit("a")); err != nil {
		t.Errorf("then a short one: %v", err)
	}
}
