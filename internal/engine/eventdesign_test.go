package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// ours reports whether a row is not in the design.
func ours(d plimsoll.ChangeDetail) bool {
	return d == plimsoll.NodeQOSDetail || d == plimsoll.AllocQOSDetail
}

// outsideOfYuniKorns says in which way an event of users and groups is not as the state's DESIGN.md
// says; empty: in none.
func outsideOfYuniKorns(e *plimsoll.Event) string {
	limit := e.Detail == plimsoll.UserLimit || e.Detail == plimsoll.GroupLimit
	use := e.Detail == plimsoll.UserResource || e.Detail == plimsoll.GroupResource
	queue, _ := e.Limit()
	switch {
	case !limit && !use && e.Detail != plimsoll.GroupLink:
		return "a USERGROUP has another detail"
	case limit && (e.Change == plimsoll.ChangeAdd || !strings.HasPrefix(queue, plimsoll.RootQueue)):
		return "a limit is set or removed, at a queue"
	case !limit && e.Reference == "":
		return "a link is of a job, and use of a queue"
	case use != (len(e.Resources) > 0) && e.Change != plimsoll.ChangeSet:
		return "only use is an amount that is added or removed"
	}
	return ""
}

// outsideOfTheDesign says in which way an event is not as the design's "Content definition" says;
// empty: in none.
func outsideOfTheDesign(e *plimsoll.Event) string {
	adds := e.Change == plimsoll.ChangeAdd || e.Change == plimsoll.ChangeRemove
	task := strings.HasPrefix(e.Reference, e.Object+".")
	whole := e.Detail == plimsoll.DetailNone || e.Detail == plimsoll.AppReject || e.Detail == plimsoll.NodeDecomission
	for name, amount := range e.Resources {
		if amount < 0 {
			return fmt.Sprintf("the Resource is always a positive value, and there are %d of %s", amount, name)
		}
	}
	switch {
	case e.Object == "":
		return "the ObjectID is empty"
	case e.Type == plimsoll.EventUserGroup && outsideOfYuniKorns(e) != "":
		return outsideOfYuniKorns(e)
	case !adds && e.Reference != "":
		return "if the change is NONE or SET the ReferenceID is always empty"
	case e.Type == plimsoll.EventApp && adds && task == whole:
		return "an APP refers to a request or an allocation, unless it is added or removed itself"
	case e.Type == plimsoll.EventNode && adds && (e.Reference != "") != (e.Detail == plimsoll.NodeAlloc):
		return "a NODE refers to an allocation, for NODE_ALLOC alone"
	case e.Type == plimsoll.EventQueue && (e.Reference != "") != (e.Detail == plimsoll.QueueApp):
		return "a QUEUE refers to an application for QUEUE_APP alone; allocations are not tracked on it"
	case e.Type == plimsoll.EventQueue && e.Reference != "" && len(e.Resources) > 0:
		return "for a QUEUE with a ReferenceID and a Resource the ID is that of an allocation"
	}
	return ""
}

// Content definition: what ReferenceID and Resource hold, for each type and change, over random
// histories.
func TestReferencesAndResourcesAreAsTheDesignDefinesThem(t *testing.T) {
	for _, seed := range seeds(t) {
		w := newWorld(t, seed, state.Limits{})
		seen := map[string]int{}
		for range testrun.Count(500, 3_000, 50_000) {
			w.step()
			for i := range w.out.Changes.Events {
				e := &w.out.Changes.Events[i]
				seen[fmt.Sprint(e.Type, " ", e.Change, " ", e.Detail)]++
				if why := outsideOfTheDesign(e); why != "" && !ours(e.Detail) {
					t.Fatalf("seed %d: %s: %+v", seed, why, *e)
				}
			}
		}
		if len(seen) < 20 {
			t.Errorf("seed %d: only these rows were told: %v", seed, seen)
		}
	}
}

// Memory usage of historical elements: "An application undergoes state transitions, so the
// following events are generated". With its ADD these are the design's 7. Each pod makes 2 more for
// the application: its request and its allocation. Here its end makes 2 more, which the design
// leaves out of its estimate.
func TestTheEventsOfAnApplicationAreThoseThatTheDesignCounts(t *testing.T) {
	const pods = 100
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(machine("n", 1000*pods))
	b.settle()
	counts := map[string]int{}
	order := []string{}
	settle := func() {
		for more := true; more; {
			more = b.turn()
			for i := range b.out.Changes.Events {
				if e := &b.out.Changes.Events[i]; e.Type == plimsoll.EventApp {
					row := fmt.Sprint(e.Change, " ", e.Detail)
					if counts[row]++; counts[row] == 1 {
						order = append(order, row)
					}
				}
			}
		}
	}
	b.send(job("j", pods, 1000))
	settle()
	running, ended := &engine.ReportTasks{Node: "n", Incarnation: 1}, &engine.ReportTasks{Node: "n", Incarnation: 1}
	for i := range int32(pods) {
		r := engine.Report{
			Job: "j", Group: "g", Index: i, TaskReport: plimsoll.TaskReport{Attempt: 1, State: plimsoll.TaskRunning},
		}
		running.Reports = append(running.Reports, r)
		r.State, r.Result = plimsoll.TaskFinished, plimsoll.ResultSucceeded
		ended.Reports = append(ended.Reports, r)
	}
	b.send(running)
	settle()
	b.send(ended)
	settle()
	states := 0
	for row, n := range counts {
		if strings.HasPrefix(row, "SET ") {
			states += n
		}
	}
	if added := counts["ADD DETAILS_NONE"]; added+states != 7 {
		t.Errorf("the application has %d events of its own, not 7: %v", added+states, order)
	}
	for row, want := range map[string]int{
		"ADD APP_REQUEST": pods, "ADD APP_ALLOC": pods, "REMOVE ALLOC_CANCEL": pods, "REMOVE APP_REQUEST": pods,
	} {
		if counts[row] != want {
			t.Errorf("there are %d %s; want %d", counts[row], row, want)
		}
	}
	want := "[ADD DETAILS_NONE SET APP_NEW ADD APP_REQUEST SET APP_ACCEPTED SET APP_STARTING ADD APP_ALLOC " +
		"SET APP_RUNNING REMOVE ALLOC_CANCEL REMOVE APP_REQUEST SET APP_COMPLETING SET APP_COMPLETED]"
	if got := fmt.Sprint(order); got != want {
		t.Errorf("the order is\n%s\nnot\n%s", got, want)
	}
}
