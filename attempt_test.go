package plimsoll_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// The steps of a task follow from its attempts. Those of attempts that are no longer held are left
// out. The reason of a stop is the result that it asks for.
func TestStepsOfATask(t *testing.T) {
	lost := plimsoll.Attempt{Number: 1, Node: "a", Result: plimsoll.ResultLost, Bound: 2, Finished: 3}
	late := lost
	late.Number = 9
	for _, c := range []struct {
		name string
		task plimsoll.Task
		want string
	}{
		{"new", plimsoll.Task{State: plimsoll.TaskPending, Created: 1}, "[1 Pending created]"},
		{
			"stopped before it ran",
			plimsoll.Task{State: plimsoll.TaskFinished, Created: 1, Finished: 2, Result: plimsoll.ResultKilled},
			"[1 Pending created 2 Finished killed]",
		},
		{
			"being stopped",
			plimsoll.Task{
				State: plimsoll.TaskStopping, Attempt: 2, Created: 1, Bound: 4, Started: 5, Stopping: 6,
				Result: plimsoll.ResultEvicted, Attempts: []plimsoll.Attempt{lost},
			},
			"[1 Pending created 2 Bound bound 3 Pending lost 4 Bound bound 5 Running started 6 Stopping evicted]",
		},
		{
			"with attempts that are no longer held",
			plimsoll.Task{
				State: plimsoll.TaskBound, Attempt: 10, Created: 1, Bound: 4, Attempts: []plimsoll.Attempt{late},
			},
			"[2 Bound bound 3 Pending lost 4 Bound bound]",
		},
		{
			"succeeded while it was being stopped",
			plimsoll.Task{
				State: plimsoll.TaskFinished, Attempt: 1, Created: 1, Bound: 2, Stopping: 3, Finished: 4,
				Result: plimsoll.ResultSucceeded,
			},
			"[1 Pending created 2 Bound bound 3 Stopping  4 Finished succeeded]",
		},
	} {
		var got []string
		for _, s := range c.task.Steps() {
			got = append(got, fmt.Sprintf("%d %s %s", s.At, s.State, s.Reason))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

// The node of an attempt is found among all attempts that a record holds, in records of an older
// version too.
func TestNodeOfAnAttempt(t *testing.T) {
	now := plimsoll.Task{
		Attempt: 5, Node: "d", Earlier: []plimsoll.NodeAttempts{{Node: "a", First: 1, Last: 2}},
		Attempts: []plimsoll.Attempt{{Number: 3, Node: "b"}, {Number: 4, Node: "c"}},
	}
	older := plimsoll.Task{Attempt: 5, Node: "d", Earlier: []plimsoll.NodeAttempts{{Node: "a", First: 1, Last: 2}}}
	for _, c := range []struct {
		task *plimsoll.Task
		want []string
	}{
		{&now, []string{"", "a", "a", "b", "c", "d", ""}},
		{&older, []string{"", "a", "a", "d", "d", "d", ""}},
	} {
		var got []string
		for attempt := range int32(7) {
			node, _ := c.task.NodeOf(attempt)
			got = append(got, node)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
