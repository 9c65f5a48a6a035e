package gateway

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// pollingFake is a fake whose leader answers polls with the given answers, in their order. Behind
// them it has no events.
func pollingFake(answers <-chan *pb.PolledRequestEvents) *fake {
	f := newFake()
	f.answer = func(*pb.Command) *pb.Reply {
		select {
		case polled := <-answers:
			return &pb.Reply{PollRequestEvents: polled}
		case <-time.After(50 * time.Millisecond):
			return &pb.Reply{PollRequestEvents: &pb.PolledRequestEvents{Store: "s1"}}
		}
	}
	return f
}

// polled is an answer with events of these numbers.
func polled(lost uint64, sequences ...uint64) *pb.PolledRequestEvents {
	m := &pb.PolledRequestEvents{Store: "s1", Lost: lost}
	for _, n := range sequences {
		m.Events = append(m.Events, &pb.RequestEvent{Sequence: n, Event: &pb.Event{Object: "a.map.0", Reference: "a"}})
	}
	return m
}

// waitingJob is a job of an owner with a group that waits for room in a queue, and one that does
// not wait.
func waitingJob(id, owner string) wire.Mutation {
	return putStatus(plimsoll.JobStatus{
		ID: id, Owner: owner, Queue: "root.batch", State: plimsoll.JobAccepted, Groups: []plimsoll.GroupStatus{
			{Name: "map", Count: 2, Counts: plimsoll.TaskCounts{Pending: 2}, Wait: plimsoll.WaitCause{
				Code: plimsoll.WaitQueueMax, Queue: "root.batch", Resource: plimsoll.CPU, Asked: 1000,
			}},
			{Name: "reduce", Count: 1, Counts: plimsoll.TaskCounts{Running: 1}},
		},
	})
}

// outlineOf tells a message as "lost 2: events 3 4: waits a.map: end".
func outlineOf(m *pb.FollowRequestEventsResponse) string {
	var parts []string
	if n := m.GetLost(); n > 0 {
		parts = append(parts, fmt.Sprint("lost ", n))
	}
	for _, e := range m.GetEvents() {
		parts = append(parts, fmt.Sprint("event ", e.GetSequence()))
	}
	for _, g := range m.GetWaiting() {
		parts = append(parts, "waits "+g.GetJob()+"."+g.GetGroup().GetName())
	}
	if m.GetWaitingEnd() {
		parts = append(parts, "end")
	}
	return strings.Join(parts, ", ")
}

func (s *served) requestEvents() plimsollv1connect.RequestEventServiceClient {
	return plimsollv1connect.NewRequestEventServiceClient(s.plain, s.url)
}

// A stream begins with the events that were kept. The groups that wait in the jobs of the owner
// follow, and then each further event. Each poll says what was sent before it.
func TestAManagerIsSentWhatWasKeptTheGroupsThatWaitAndThenEachEvent(t *testing.T) {
	answers := make(chan *pb.PolledRequestEvents, 3)
	f := pollingFake(answers)
	f.put(waitingJob("a", "alice"), waitingJob("b", "bob"))
	ended := plimsoll.JobStatus{ID: "c", Owner: "alice", Queue: "root.batch", State: plimsoll.JobFailed}
	f.put(putStatus(ended))
	s := serve(t, Config{}, f)
	answers <- polled(0, 7, 8)
	stream := open(t, s.requestEvents().FollowRequestEvents,
		&pb.FollowRequestEventsRequest{Manager: "shim", Owner: "alice"})
	first, state := receive(t, stream), receive(t, stream)
	if got := outlineOf(first); got != "event 7, event 8" || first.GetStore() != "s1" {
		t.Errorf("the first message is %q, of store %q", got, first.GetStore())
	}
	if got := outlineOf(state); got != "waits a.map, end" || state.GetRevision() != 2 ||
		state.GetWaiting()[0].GetGroup().GetWaitQueue() != "root.batch" {
		t.Errorf("the second message is %q at revision %d: %v", got, state.GetRevision(), state.GetWaiting())
	}
	answers <- polled(0, 9)
	if got := outlineOf(receive(t, stream)); got != "event 9" {
		t.Errorf("the third message is %q", got)
	}
	var after []uint64
	streams := map[string]bool{}
	for i, cmd := range f.sent() {
		poll := cmd.GetPollRequestEvents()
		after, streams[poll.GetStream()] = append(after, poll.GetAfter()), true
		if poll.GetManager() != "shim" || poll.GetOwner() != "alice" || poll.GetBegin() != (i == 0) {
			t.Errorf("poll %d is %v", i, poll)
		}
	}
	if len(after) < 2 || !slices.Equal(after[:2], []uint64{0, 8}) || len(streams) != 1 {
		t.Errorf("the polls are behind %v, of %d streams", after, len(streams))
	}
}

// After a loss a manager is sent the groups that wait again, so that it knows the truth whatever it
// has missed. That costs the gateway a look at each job, so it happens at most every ten seconds.
func TestALossIsFollowedByTheGroupsThatWait(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		answers := make(chan *pb.PolledRequestEvents, 3)
		f := pollingFake(answers)
		f.put(waitingJob("a", "alice"))
		type message struct {
			at   time.Duration
			text string
		}
		began := time.Now()
		var got []message
		follow := requestFollow{
			g: newGateway(t, Config{}, f), manager: "shim", stream: "x",
			send: func(m *pb.FollowRequestEventsResponse) error {
				got = append(got, message{time.Since(began).Truncate(time.Second), outlineOf(m)})
				return nil
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		answers <- polled(0)
		answers <- polled(3, 4)
		answers <- polled(2, 7)
		go func() { done <- follow.run(ctx) }()
		time.Sleep(21 * time.Second)
		cancel()
		synctest.Wait()
		if err := <-done; plimsoll.CodeOf(err) != plimsoll.CodeCanceled {
			t.Errorf("the stream ended with %v", err)
		}
		want := []message{
			{0, ""},
			{0, "waits a.map, end"},
			{0, "lost 3, event 4"},
			{0, "lost 2, event 7"},
			{10 * time.Second, "waits a.map, end"},
		}
		if !slices.Equal(got, want) {
			t.Errorf("sent were\n%v, want\n%v", got, want)
		}
	})
}

// The groups that wait are charged with at least what they take: their jobs, decoded, and the
// message of them. All of that is given back. Without room for a job the survey ends before it is
// decoded.
func TestTheGroupsThatWaitAreChargedWithWhatTheyTake(t *testing.T) {
	large := plimsoll.JobStatus{ID: "a", Owner: "alice", Queue: "root.batch", State: plimsoll.JobAccepted}
	for i := range 500 {
		large.Groups = append(large.Groups, plimsoll.GroupStatus{
			Name: fmt.Sprintf("%060d", i), Count: 1, Counts: plimsoll.TaskCounts{Pending: 1},
			Wait: plimsoll.WaitCause{Code: plimsoll.WaitQueueMax, Queue: "root.batch", Resource: plimsoll.CPU},
		})
	}
	f := newFake()
	f.put(waitingJob("0", "alice"), putStatus(large), waitingJob("b", "alice"))
	g := newGateway(t, Config{}, f)
	for _, c := range []struct {
		most int64
		code plimsoll.Code
		told int
	}{{1 << 20, plimsoll.CodeInternal, 502}, {10 << 10, plimsoll.CodeExhausted, 0}} {
		b := budget{whose: "users", bound: "user_bytes", most: c.most}
		told := 0
		follow := requestFollow{
			g: g, owner: "alice", charge: &charge{gateway: g, answer: httptest.NewRecorder(), budget: &b},
			send: func(m *pb.FollowRequestEventsResponse) error {
				told += len(m.GetWaiting())
				if used := b.used.Load(); len(m.GetWaiting()) > 0 && used < int64(3*proto.Size(m)) {
					t.Errorf("a message of %d bytes is charged with %d", proto.Size(m), used)
				}
				return nil
			},
		}
		err := follow.survey(t.Context(), f.tables.Snapshot())
		if (err != nil) != (c.code == plimsoll.CodeExhausted) || err != nil && plimsoll.CodeOf(err) != c.code {
			t.Errorf("within %d bytes: %v", c.most, err)
		}
		if told != c.told || b.used.Load() != 0 {
			t.Errorf("within %d bytes %d groups are told, and %d bytes are kept", c.most, told, b.used.Load())
		}
	}
}

// A stream ends with the leader's reason. An answer that does not come, or that comes from an older
// leader, is no fault of the manager. A bad name is refused before the leader is asked.
func TestAStreamOfAManagerEndsWithTheReason(t *testing.T) {
	off := plimsoll.Errorf(plimsoll.CodeConflict, "the events for resource managers are off")
	for name, c := range map[string]struct {
		request *pb.FollowRequestEventsRequest
		answer  *pb.Reply
		down    error
		code    plimsoll.Code
		has     string
	}{
		"off":   {answer: &pb.Reply{Error: wire.ErrorToProto(off)}, code: plimsoll.CodeConflict, has: "are off"},
		"older": {answer: &pb.Reply{}, code: plimsoll.CodeUnimplemented, has: "older version"},
		"gone":  {down: errNoLeader, code: plimsoll.CodeUnavailable, has: "not connected"},
		"silent": {
			down: plimsoll.Errorf(plimsoll.CodeOutcomeUnknown, "the leader has not replied"),
			code: plimsoll.CodeUnavailable, has: "follow the events again",
		},
		"bad name": {
			request: &pb.FollowRequestEventsRequest{Manager: "a b"}, code: plimsoll.CodeInvalid, has: "manager: ",
		},
		"bad owner": {
			request: &pb.FollowRequestEventsRequest{Manager: "a", Owner: strings.Repeat("x", 129)},
			code:    plimsoll.CodeInvalid, has: "owner: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.down = c.down
			f.answer = func(*pb.Command) *pb.Reply { return c.answer }
			if c.request == nil {
				c.request = &pb.FollowRequestEventsRequest{Manager: "shim"}
			}
			s := serve(t, Config{}, f)
			err := ending(t, open(t, s.requestEvents().FollowRequestEvents, c.request))
			if plimsoll.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.has) {
				t.Errorf("%v", err)
			}
		})
	}
}

// An acknowledgement goes to the leader as it came, and its answer back.
func TestAnAcknowledgementGoesToTheLeader(t *testing.T) {
	f := newFake()
	f.answer = func(*pb.Command) *pb.Reply {
		return &pb.Reply{AcknowledgeRequestEvents: &pb.AcknowledgeRequestEventsResponse{Kept: 5}}
	}
	s := serve(t, Config{}, f)
	req := &pb.AcknowledgeRequestEventsRequest{Manager: "shim", Owner: "alice", Store: "s1", Sequence: 9}
	if got := must(t, s.requestEvents().AcknowledgeRequestEvents, req); got.GetKept() != 5 {
		t.Errorf("%v", got)
	}
	if sent := f.sent(); len(sent) != 1 || sent[0].GetAcknowledgeRequestEvents().GetSequence() != 9 {
		t.Errorf("the leader was sent %v", sent)
	}
	_, err := s.requestEvents().AcknowledgeRequestEvents(
		t.Context(), connect.NewRequest(&pb.AcknowledgeRequestEventsRequest{Manager: "shim"}),
	)
	if err := wire.FromConnectError(err); plimsoll.CodeOf(err) != plimsoll.CodeInvalid ||
		!strings.Contains(err.Error(), "store: is missing") {
		t.Errorf("%v", err)
	}
}
