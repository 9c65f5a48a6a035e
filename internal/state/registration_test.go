package state

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

const testTime = int64(1_800_000_000) * second

// claimed returns a state in which an agent with the key a is registered as n1, with one task.
func claimed(t *testing.T) (*State, Ref) {
	t.Helper()
	s := New(Config{}, plimsoll.DefaultQueues())
	s.Begin(testTime, 1)
	mustClaim(t, s, "a", 5)
	j, err := s.Submit(
		&plimsoll.JobSpec{
			ID: "j", Queue: "root.default",
			Groups: []plimsoll.GroupSpec{{Name: "g", Count: 1, Command: []string{"true"}}},
		},
		false,
	)
	if err != nil {
		t.Fatal(err)
	}
	s.Continue(Budget{})
	s.Bind(j.Groups[0].Next(), s.Node("n1").Slot)
	return s, Ref{&j.Groups[0], 0}
}

func claim(s *State, key string, incarnation uint64) error {
	_, err := s.Register(&plimsoll.Node{
		ID: "n1", Incarnation: incarnation, Key: key, Session: key, Peer: "10.0.0.1",
		Capacity: plimsoll.Resources{"cpu": 1000},
	}, "g")
	return err
}

func mustClaim(t *testing.T, s *State, key string, incarnation uint64) {
	t.Helper()
	if err := claim(s, key, incarnation); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code plimsoll.Code, says ...string) {
	t.Helper()
	if plimsoll.CodeOf(err) != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

func TestForeignKeyIsRefusedWhileTheFirstIsHeard(t *testing.T) {
	s, _ := claimed(t)
	s.Begin(testTime+second, 2)
	for _, incarnation := range []uint64{4, 5, 6} {
		wantCode(t, claim(
			s, "b", incarnation,
		), plimsoll.CodeConflict, `"n1"`, "heard since 2027-01-15T08:00:00Z (from 10.0.0.1)", "--node",
			"plimsoll node remove n1")
	}
	if n := s.Node("n1"); n.Key != "a" || n.Incarnation != 5 {
		t.Errorf("the node is %+v", n.Node)
	}
}

func TestForeignKeyWaitsUntilTheTasksOfTheNodeAreGivenUp(t *testing.T) {
	s, task := claimed(t)
	n := s.Node("n1")
	s.Silent("n1", n.Registration)
	wantCode(t, claim(s, "b", 6), plimsoll.CodeConflict, "not given up yet (that takes 1m0s)")
	s.Begin(testTime+61*second, 2)
	s.nodeDue(n) // but nothing was given up yet
	wantCode(t, claim(s, "b", 6), plimsoll.CodeConflict, "not given up yet")
	if task.Task().State != plimsoll.TaskBound {
		t.Fatalf("the task is %s", task.Task().State)
	}
	s.Continue(Budget{})
	mustClaim(t, s, "b", 3)
	if n.Key != "b" || n.Incarnation != 3 || !n.Ready || len(n.tasks) != 0 || task.Task().Attempt != 1 {
		t.Errorf("the node is %+v with %d tasks", n.Node, len(n.tasks))
	}
	wantCode(t, claim(s, "a", 7), plimsoll.CodeConflict)
}

func TestSameKeyTakesOverAtOnce(t *testing.T) {
	s, task := claimed(t)
	mustClaim(t, s, "a", 6)
	if n := s.Node("n1"); n.Incarnation != 6 || !n.Ready || len(n.tasks) != 1 || task.Task().Attempt != 1 {
		t.Errorf("the node is %+v with %d tasks", n.Node, len(n.tasks))
	}
	wantCode(t, claim(s, "a", 5), plimsoll.CodeStale, "incarnation 6, yours is 5")
	if _, err := s.CheckReporter("n1", 5); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Errorf("a report of the one before: %v", err)
	}
	if _, err := s.CheckReporter("n1", 7); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("a report of one that has not registered: %v", err)
	}
}

func TestIncarnationFromTheFutureIsRefused(t *testing.T) {
	s, _ := claimed(t)
	last := uint64(testTime/1e6) + 24*3600*1000
	wantCode(
		t, claim(s, "a", math.MaxUint64), plimsoll.CodeInvalid, "incarnation", "from the future",
		"set the clocks right",
	)
	wantCode(t, claim(s, "a", last+1), plimsoll.CodeInvalid, "from the future")
	mustClaim(t, s, "a", last)
}

func TestALeaderWhoseClockIsBehindKeepsItsNodes(t *testing.T) {
	s := New(Config{}, plimsoll.DefaultQueues())
	s.Begin(testTime, 1)
	now := uint64(testTime / 1e6)
	mustClaim(t, s, "a", now)
	s.Begin(testTime-10*24*3600*second, 2)
	mustClaim(t, s, "a", now)
	mustClaim(t, s, "a", now+1) // its agent starts anew
	wantCode(t, claim(s, "a", now+1+fewStarts+1), plimsoll.CodeInvalid, "from the future")
	wantCode(t, claim(s, "b", now+1), plimsoll.CodeInvalid, "from the future")
}

// A store of an earlier version may hold an incarnation that no agent can exceed. It is ignored, so
// no agent is refused.
func TestIncarnationFromTheFutureThatIsStoredDoesNotCount(t *testing.T) {
	for _, key := range []string{"", "a"} {
		l := NewLoader(Config{}, plimsoll.DefaultQueues())
		l.Node(
			plimsoll.Node{
				ID: "n1", Incarnation: math.MaxUint64, Mode: plimsoll.NodeActive, Ready: true, Key: key, Session: "x",
			},
		)
		s, err := l.End(testTime)
		if err != nil {
			t.Fatal(err)
		}
		s.Begin(testTime, 2)
		mustClaim(t, s, "a", 5)
		if n := s.Node("n1"); n.Incarnation != 5 || n.Key != "a" {
			t.Errorf("the node is %+v", n.Node)
		}
	}
}

// A node that an earlier version registered has no key. The first key that comes becomes its own.
func TestNodeWithoutAKeyTakesTheFirst(t *testing.T) {
	s := New(Config{}, plimsoll.DefaultQueues())
	s.Begin(testTime, 1)
	node := plimsoll.Node{ID: "n1", Incarnation: 8}
	for _, incarnation := range []uint64{8, 9} { // as it always was
		node.Incarnation = incarnation
		if _, err := s.Register(&node, "g"); err != nil {
			t.Fatal(err)
		}
	}
	mustClaim(t, s, "a", 3)
	_, err := s.Register(&node, "g")
	wantCode(t, err, plimsoll.CodeConflict)
}

func TestAbsurdSequencesAreRefused(t *testing.T) {
	s, _ := claimed(t)
	wantCode(t, s.ReportNode("n1", 5, plimsoll.MaxSequence+1, &plimsoll.NodeReport{}), plimsoll.CodeInvalid, "sequence")
	if err := s.ReportNode("n1", 5, 1, &plimsoll.NodeReport{}); err != nil || s.Node("n1").Gate.Sequence != 1 {
		t.Errorf("the next report: %v, sequence %d", err, s.Node("n1").Gate.Sequence)
	}
}

func TestAbsurdCapacitiesAreRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		most int64
	}{
		{plimsoll.CPU, 100_000_000},
		{plimsoll.Memory, 1 << 50},
		{plimsoll.Disk, plimsoll.MaxAmount},
		{"nvidia.com/gpu", 1 << 50},
	} {
		node := plimsoll.Node{ID: "n1", Incarnation: 1, Capacity: plimsoll.Resources{test.name: test.most}}
		if err := node.Validate(); err != nil {
			t.Errorf("%s of %d: %v", test.name, test.most, err)
		}
		for _, amount := range []int64{test.most + 1, math.MaxInt64, -1} {
			node.Capacity[test.name] = amount
			wantCode(t, node.Validate(), plimsoll.CodeInvalid, "capacity."+test.name)
		}
	}
	offers := plimsoll.NodeReport{Extended: plimsoll.Resources{plimsoll.ExtCPU: 100_000_001}}
	wantCode(t, offers.Validate(), plimsoll.CodeInvalid, "extended.ext-cpu")
}

// The maximum of the root is the capacity of the fleet. Its record follows each change of that in
// the same turn, so that lists and watches of queues are told.
func TestTheRecordOfTheRootFollowsTheCapacityOfTheFleet(t *testing.T) {
	s := New(Config{}, plimsoll.DefaultQueues())
	node := plimsoll.Node{ID: "n1", Incarnation: 1, Key: "a", Session: "a", Capacity: plimsoll.Resources{"cpu": 1000}}
	register := func() error {
		_, err := s.Register(&node, "g")
		return err
	}
	for i, step := range []struct {
		name string
		do   func() error
		want int64
	}{
		{"a node registers", register, 1000},
		{"it has grown", func() error {
			node.Incarnation, node.Capacity = 2, plimsoll.Resources{"cpu": 3000}
			return register()
		}, 3000},
		{"it is removed", func() error {
			s.Silent("n1", s.Node("n1").Registration)
			s.Begin(testTime+100*second, 90)
			s.nodeDue(s.Node("n1"))
			s.Continue(Budget{})
			return s.RemoveNode("n1")
		}, 0},
	} {
		s.Begin(testTime+int64(i)*second, uint64(1+i))
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		var c Changes
		s.Take(&c)
		found := slices.IndexFunc(c.QueueStatuses, func(q plimsoll.QueueStatus) bool { return q.Path == "root" })
		if found < 0 {
			t.Errorf("%s: the record of the root is not written", step.name)
		} else if got := c.QueueStatuses[found].Max["cpu"]; got != step.want {
			t.Errorf("%s: the maximum is %d, not %d", step.name, got, step.want)
		}
	}
}
