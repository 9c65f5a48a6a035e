package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// fleet is a gateway with its janitor, in the time of a synctest bubble, and a leader that
// registers nodes.
type fleet struct {
	*served
	leader  *fake
	asleep  time.Duration // how long the machine was suspended so far
	reports []error       // what the listener was told of silent nodes
	mu      sync.Mutex
}

func newFleet(t *testing.T, cfg Config) *fleet {
	t.Helper()
	began := time.Now()
	fl := &fleet{leader: newFake()}
	registrations := uint64(0)
	fl.leader.answer = func(cmd *pb.Command) *pb.Reply {
		switch {
		case cmd.GetRegisterNode() != nil:
			node := wire.NodeFromProto(cmd.GetRegisterNode().GetNode())
			node.Ready = true
			fl.leader.put(putNode(node))
			registrations++
			return &pb.Reply{Registration: registrations}
		case cmd.GetNodeLiveness() != nil:
			fl.leader.put(
				putNode(
					plimsoll.Node{
						ID: cmd.GetNodeLiveness().GetNode(), Incarnation: cmd.GetNodeLiveness().GetIncarnation(),
					},
				),
			)
		}
		return &pb.Reply{}
	}
	cfg.Clock = func() time.Duration {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		return time.Since(began) + fl.asleep + time.Hour
	}
	cfg.Events.NodeSilent = func(_ string, err error) {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		fl.reports = append(fl.reports, err)
	}
	g := newGateway(t, cfg, fl.leader)
	fl.served = directly(g)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.watchNodes(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return fl
}

func (fl *fleet) register(t *testing.T, id string, incarnation uint64) {
	t.Helper()
	resp := must(t, fl.agents.RegisterNode, &pb.RegisterNodeRequest{Node: &pb.Node{Id: id, Incarnation: incarnation}})
	if resp.GetHeartbeatIntervalNanos() != (2 * time.Second).Nanoseconds() {
		t.Errorf("the interval is %d", resp.GetHeartbeatIntervalNanos())
	}
}

func (fl *fleet) heartbeat(t *testing.T, id string, incarnation uint64) bool {
	t.Helper()
	return must(t, fl.agents.Heartbeat, &pb.HeartbeatRequest{Node: id, Incarnation: incarnation}).GetRegistered()
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d) // of the bubble: nobody waits
	synctest.Wait()
}

// silences are the nodes that the leader was told of, since the last call.
func (fl *fleet) silences() (told []string) {
	for _, cmd := range fl.leader.sent() {
		if n := cmd.GetNodeLiveness(); n != nil {
			told = append(told, fmt.Sprintf("%s/%d#%d", n.GetNode(), n.GetIncarnation(), n.GetRegistration()))
		}
	}
	slices.Sort(told)
	return told
}

func TestASilentNodeIsToldToTheLeaderOnceARegistration(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{})
		fl.register(t, "n1", 1)
		fl.register(t, "n2", 7)
		for range 10 { // n1 is heard, n2 is not
			pass(2 * time.Second)
			if !fl.heartbeat(t, "n1", 1) {
				t.Fatal("n1 is asked to register again")
			}
		}
		if told := fl.silences(); !slices.Equal(told, []string{"n2/7#2"}) {
			t.Errorf("the leader was told of %v", told)
		}
		if fl.heartbeat(t, "n2", 7) {
			t.Error("n2 is not asked to register again")
		}
		fl.register(t, "n2", 7)
		if !fl.heartbeat(t, "n2", 7) {
			t.Error("n2 has registered again, and is asked for it")
		}
		pass(time.Minute)
		if told := fl.silences(); !slices.Equal(told, []string{"n1/1#1", "n2/7#3"}) {
			t.Errorf("later the leader was told of %v", told)
		}
	})
}

func TestANodeIsSilentOnlyAfterTheWholeTimeout(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{})
		fl.register(t, "n1", 1)
		pass(10 * time.Second)
		if told := fl.silences(); len(told) > 0 {
			t.Errorf("after 10s the leader was told of %v", told)
		}
		pass(2 * time.Second)
		if told := fl.silences(); len(told) != 1 {
			t.Errorf("after 12s the leader was told of %v", told)
		}
	})
}

func TestAReportIsASignOfLife(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{})
		fl.register(t, "n1", 1)
		for i := range uint64(10) {
			pass(5 * time.Second)
			must(t, fl.agents.ReportTasks, &pb.ReportTasksRequest{Node: "n1", Incarnation: 1, Sequence: i + 1})
		}
		if told := fl.silences(); len(told) > 0 {
			t.Errorf("the leader was told of %v", told)
		}
	})
}

func TestHeartbeatsOfOtherIncarnations(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{})
		fl.register(t, "n1", 5)
		if fl.heartbeat(t, "n1", 6) {
			t.Error("an incarnation that has not registered is taken for registered")
		}
		if fl.heartbeat(t, "unknown", 1) {
			t.Error("an unknown node is taken for registered")
		}
		for _, err := range []error{
			second(call(fl.agents.Heartbeat, &pb.HeartbeatRequest{Node: "n1", Incarnation: 4})),
			second(call(fl.agents.ReportTasks, &pb.ReportTasksRequest{Node: "n1", Incarnation: 4, Sequence: 1})),
		} {
			if plimsoll.CodeOf(err) != plimsoll.CodeStale {
				t.Errorf("an older incarnation: %v", err)
			}
		}
	})
}

// The leader's state of a node counts more than the heartbeats that arrive here.
func TestAHeartbeatAsksForWhatTheLeaderLacks(t *testing.T) {
	tests := []struct {
		name   string
		record wire.Mutation
	}{
		{"the leader takes the node for dead", putNode(plimsoll.Node{ID: "n1", Incarnation: 1})},
		{"the node was removed", deleted(putNode(plimsoll.Node{ID: "n1"}))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				fl := newFleet(t, Config{})
				fl.register(t, "n1", 1)
				fl.leader.put(test.record)
				if fl.heartbeat(t, "n1", 1) {
					t.Error("the node is not asked to register again")
				}
			})
		})
	}
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{})
		fl.register(t, "n1", 1)
		fl.leader.put(putNode(plimsoll.Node{ID: "n1", Incarnation: 2, Ready: true})) // through another gateway
		_, err := call(fl.agents.Heartbeat, &pb.HeartbeatRequest{Node: "n1", Incarnation: 1})
		if plimsoll.CodeOf(err) != plimsoll.CodeStale {
			t.Errorf("an agent that was replaced at another gateway: %v", err)
		}
	})
}

// The leader gives the nodes of a gateway that it lost a while to register again, so they are asked
// to.
func TestANewConnectionToTheLeaderAsksForAllRegistrations(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{})
		fl.register(t, "n1", 1)
		fl.leader.reconnect()
		synctest.Wait()
		if fl.heartbeat(t, "n1", 1) {
			t.Error("the node is not asked to register again")
		}
		pass(time.Minute)
		if told := fl.silences(); len(told) > 0 {
			t.Errorf("the leader was told of %v, which is of another connection", told)
		}
		fl.register(t, "n1", 1)
		if !fl.heartbeat(t, "n1", 1) {
			t.Error("the node has registered again, and is asked for it")
		}
	})
}

func TestARegistrationOverABrokenConnectionDoesNotCount(t *testing.T) {
	l := newLiveness(10)
	connection, err := l.reserve("n1")
	if err != nil {
		t.Fatal(err)
	}
	l.reconnected()
	l.register("n1", connection, 1, 5, 0)
	if known, err := l.heard("n1", 1, 0); known || err != nil {
		t.Errorf("known is %v, %v", known, err)
	}
}

func TestALateRegistrationDoesNotReplaceANewerOne(t *testing.T) {
	l := newLiveness(10)
	connection, err := l.reserve("n1")
	if err != nil {
		t.Fatal(err)
	}
	l.register("n1", connection, 2, 6, 0)
	l.register("n1", connection, 1, 5, 0)
	if known, err := l.heard("n1", 2, 0); !known || err != nil {
		t.Errorf("known is %v, %v", known, err)
	}
}

func TestSilenceIsReportedOnceThereIsALeaderAgain(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{})
		fl.register(t, "n1", 1)
		fl.leader.set(func(f *fake) { f.down = errNoLeader })
		pass(20 * time.Second)
		if told := fl.silences(); len(told) > 0 {
			t.Errorf("without a leader, somebody was told of %v", told)
		}
		fl.leader.set(func(f *fake) { f.down = nil })
		pass(2 * time.Second)
		if told := fl.silences(); len(told) != 1 {
			t.Errorf("the leader was told of %v", told)
		}
		fl.mu.Lock()
		defer fl.mu.Unlock()
		if n := len(fl.reports); n < 2 || fl.reports[0] == nil || fl.reports[n-1] != nil {
			t.Errorf("the log was told %v", fl.reports)
		}
	})
}

// A machine that was suspended has heard nobody, and everybody may have spoken: silence counts from
// then.
func TestWhileTheGatewayStoodStillNobodyWasSilent(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{})
		fl.register(t, "n1", 1)
		pass(4 * time.Second)
		fl.mu.Lock()
		fl.asleep = time.Hour
		fl.mu.Unlock()
		pass(10 * time.Second)
		if told := fl.silences(); len(told) > 0 {
			t.Errorf("at waking up the leader was told of %v", told)
		}
		pass(6 * time.Second)
		if told := fl.silences(); len(told) != 1 {
			t.Errorf("a node that stays silent: the leader was told of %v", told)
		}
	})
}

func TestTheTableOfNodesIsBounded(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{MaxNodes: 2})
		fl.register(t, "n1", 1)
		fl.register(t, "n2", 1)
		register := func(id string) error {
			return second(call(fl.agents.RegisterNode, &pb.RegisterNodeRequest{Node: &pb.Node{Id: id, Incarnation: 2}}))
		}
		if err := register("n3"); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
			t.Errorf("the third: %v", err)
		}
		if err := register("n1"); err != nil {
			t.Errorf("one that is known already: %v", err)
		}
		pass(9 * time.Second)
		fl.heartbeat(t, "n1", 2)
		pass(4 * time.Second) // n2 is silent and dropped
		if err := register("n3"); err != nil {
			t.Errorf("once there is room: %v", err)
		}
	})
}

func TestARefusedRegistrationTakesNoRoom(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{MaxNodes: 1})
		accepts := fl.leader.answer
		fl.leader.answer = func(*pb.Command) *pb.Reply {
			return &pb.Reply{
				Error: wire.ErrorToProto(plimsoll.Errorf(plimsoll.CodeStale, "another agent has started since")),
			}
		}
		if _, err := call(
			fl.agents.RegisterNode, &pb.RegisterNodeRequest{Node: &pb.Node{Id: "n1", Incarnation: 1}},
		); plimsoll.CodeOf(err) != plimsoll.CodeStale {
			t.Errorf("got %v", err)
		}
		fl.leader.answer = accepts
		fl.register(t, "n2", 1)
	})
}

func TestTheDefaultClockGoesOn(t *testing.T) {
	if first, next := boottime(), boottime(); first <= 0 || next < first {
		t.Errorf("it shows %s, then %s", first, next)
	}
}

// A node whose agent says that it stops is told to the leader at once, and not once more when it is
// silent.
func TestANodeThatLeavesIsToldToTheLeaderAtOnce(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		fl := newFleet(t, Config{})
		fl.register(t, "n1", 3)
		fl.leader.sent()
		must(t, fl.agents.LeaveNode, &pb.LeaveNodeRequest{Node: "n1", Incarnation: 3, Running: 2})
		sent := fl.leader.sent()
		if len(sent) != 1 || sent[0].GetLeaveNode().GetNode() != "n1" || sent[0].GetLeaveNode().GetRunning() != 2 {
			t.Errorf("the leader was told %v", sent)
		}
		pass(time.Minute)
		if told := fl.silences(); len(told) > 0 {
			t.Errorf("it was also told of the silence of %v", told)
		}
		fl.register(t, "n1", 4)
		must(t, fl.agents.LeaveNode, &pb.LeaveNodeRequest{Node: "n1", Incarnation: 3}) // comes late
		if !fl.heartbeat(t, "n1", 4) {
			t.Error("the next agent is not heard")
		}
	})
}
