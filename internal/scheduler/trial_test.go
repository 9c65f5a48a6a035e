package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

func trialJob(groups ...plimsoll.GroupSpec) *plimsoll.JobSpec {
	return &plimsoll.JobSpec{ID: "try", Owner: "alice", Queue: "root.a", Groups: groups}
}

func trialGroup(name string, count int32, cpu int64) plimsoll.GroupSpec {
	return plimsoll.GroupSpec{
		Name: name, Count: count, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": cpu},
	}
}

// A trial returns how many tasks fit, where, the room left afterwards, and why the next task does
// not fit. Later groups get the room that earlier ones leave. It also reports why the queue would
// hold tasks back. Nothing is changed.
func TestTry(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a", Max: plimsoll.Resources{"cpu": 5000}}))
	c.node("n1", 4000)
	c.node("n2", 4000)
	trial, err := c.sched.Try(c.s, trialJob(trialGroup("map", 2, 3000), trialGroup("reduce", 5, 1000)), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	m, r := &trial.Groups[0], &trial.Groups[1]
	if len(m.Placed) != 2 || m.Why != nil || m.Placed[0].Server == m.Placed[1].Server || m.Free(1)["cpu"] != 1000 {
		t.Errorf("map: %+v", m)
	}
	if len(r.Placed) != 2 || r.Asked != 5 || r.Stopped || r.Why == nil || r.Code != plimsoll.WaitNoNode ||
		r.Summary != "2 of 2 nodes: not enough cpu" {
		t.Errorf("reduce: %+v", r)
	}
	if want := "root.a has cpu 5 left of its max of 5, and they ask for 8"; trial.QueueReason != want {
		t.Errorf("the queue: %q, want %q", trial.QueueReason, want)
	}
	if err := c.s.Check(); err != nil {
		t.Error(err)
	}
	if bound := c.submit("real", "root.a", 1, 4000); len(bound) != 1 {
		t.Errorf("after the trial %v are bound", bound)
	}
}

// Each kind of refusal has its code: not eligible, too large, no nodes.
func TestTryTellsWhyNoneFits(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	picky := trialGroup("g", 1, 100)
	picky.Constraints.Traits = map[string]plimsoll.Trait{"ssd": {Flag: true}}
	try := func(g plimsoll.GroupSpec) plimsoll.WaitCode {
		trial, err := c.sched.Try(c.s, trialJob(g), "", 0)
		if err != nil || len(trial.Groups) != 1 || len(trial.Groups[0].Placed) != 0 {
			t.Fatalf("%v, %+v", err, trial)
		}
		return trial.Groups[0].Code
	}
	if code := try(picky); code != plimsoll.WaitNoNodes {
		t.Errorf("without nodes: %s", code)
	}
	c.node("n1", 4000)
	if code := try(picky); code != plimsoll.WaitNotEligible {
		t.Errorf("with a trait that no node has: %s", code)
	}
	if code := try(trialGroup("g", 1, 5000)); code != plimsoll.WaitTooLarge {
		t.Errorf("too large: %s", code)
	}
}

// A queue that does not exist, or has as many jobs as it may, is reported; the trial is answered.
func TestTryTellsOfTheQueue(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a", MaxJobs: 1}))
	c.node("n1", 4000)
	c.submit("first", "root.a", 1, 100)
	job := trialJob(trialGroup("g", 1, 100))
	for queue, want := range map[string]string{
		"root.a": "root.a runs as many jobs as it may: 1 of 1",
		"root.x": `the job would be refused: queue: "root.x" does not exist; the leaf queues are root.a`,
	} {
		job.Queue = queue
		trial, err := c.sched.Try(c.s, job, "", 0)
		if err != nil || trial.QueueReason != want || len(trial.Groups[0].Placed) != 1 {
			t.Errorf("%s: %v, %+v", queue, err, trial)
		}
	}
}

// An impossible request is refused with the name of the field and the correction.
func TestTryRefuses(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.node("n1", 4000)
	bad := trialGroup("bad", 1, 100)
	bad.Constraints.Where = "node.nothing == 1"
	for _, test := range []struct {
		group string
		count int
		field string
		text  string
	}{
		{"reduce", 0, "group", "it has map, bad"},
		{"map", -1, "count", "from 1 to 10000"},
		{"map", scheduler.MaxTrial + 1, "count", "from 1 to 10000"},
		{"", 0, "groups[1].constraints.where", "nothing"},
	} {
		_, err := c.sched.Try(c.s, trialJob(trialGroup("map", 1, 100), bad), test.group, test.count)
		e, ok := err.(*plimsoll.Error) //nolint:errorlint // it is not wrapped
		if !ok || e.Field != test.field || !strings.Contains(e.Msg, test.text) {
			t.Errorf("group %q, count %d: %v", test.group, test.count, err)
		}
	}
	if err := c.s.Check(); err != nil {
		t.Error(err)
	}
}

// A group of a million tasks is tried up to the bound of one trial. The number that fit is
// reported as a lower bound.
func TestTryIsBounded(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.node("n1", 64_000_000)
	trial, err := c.sched.Try(c.s, trialJob(trialGroup("g", 1_000_000, 1)), "", 0)
	if g := &trial.Groups[0]; err != nil || len(g.Placed) != scheduler.MaxTrial || !g.Stopped || g.Asked != 1_000_000 {
		t.Errorf("%v, %d placed, stopped %t", err, len(g.Placed), g.Stopped)
	}
}

// Capacities are those of the named nodes, in their order, or of all nodes by id. A cordoned node
// is included; a silent node is reported with the reason.
func TestCapacities(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.node("n2", 4000)
	c.node("n1", 2000)
	c.submit("j", "root.a", 1, 2500)
	c.turn(func() error { return c.s.SetNodeMode("n1", plimsoll.NodeCordoned) })
	c.node("n3", 1000)
	c.turn(func() error { c.s.Silent("n3", c.s.Node("n3").Registration); return nil })
	all, err := c.sched.Capacities(c.s, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range all {
		got = append(
			got, fmt.Sprintf("%s %d of %d, %d tasks, %q", n.Server, n.Free["cpu"], n.Whole["cpu"], n.Instances, n.Why),
		)
	}
	want := []string{
		`n1 2000 of 2000, 0 tasks, ""`, `n2 1500 of 4000, 1 tasks, ""`,
		`n3 0 of 1000, 0 tasks, "running: not heard from"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	some, err := c.sched.Capacities(c.s, []string{"n3", "n2"})
	if err != nil || len(some) != 2 || some[0].Server != "n3" {
		t.Errorf("%v %v", err, some)
	}
	if _, err := c.sched.Capacities(c.s, []string{"n9"}); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("an unknown node: %v", err)
	}
}

// A decision is kept until a fixed number of other tasks was placed after it. A later task of the
// same name, placed in another way, does not get the decision of the first.
func TestDecisionsOfTasks(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.node("n1", 4000)
	c.node("n2", 3000)
	c.at += 7e9
	c.submit("first", "root.a", 1, 2500)
	explain := func(job string) scheduler.Explanation {
		ref, ok := c.s.FindTask(job, "g", 0)
		if !ok {
			t.Fatalf("there is no task of %s", job)
		}
		x, err := c.sched.Explain(c.s, ref, "")
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	d := explain("first").Decision
	if d == nil || d.Looked != 2 || len(d.Candidates) != 2 || d.Candidates[0].Server != d.Server || len(d.Steps) == 0 {
		t.Fatalf("%+v", d)
	}
	for _, n := range d.Candidates {
		if whole := map[string]int64{"n1": 4000, "n2": 3000}[n.Server]; n.Free["cpu"] != whole {
			t.Errorf("before it came, %s had %d of %d", n.Server, n.Free["cpu"], whole)
		}
	}
	c.submit("many", "root.a", scheduler.KeptDecisions-1, 0)
	if explain("first").Decision == nil {
		t.Error("it is forgotten too early")
	}
	c.submit("one-more", "root.a", 1, 0)
	if explain("first").Decision != nil || explain("one-more").Decision == nil {
		t.Error("the oldest gives way to the newest")
	}
}

// A question about a node returns the verdict of every filter, and an unknown node is refused.
func TestExplainANode(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.node("n1", 1000)
	c.turn(func() error { return c.s.SetNodeMode("n1", plimsoll.NodeCordoned) })
	c.submit("j", "root.a", 1, 2000)
	ref, _ := c.s.FindTask("j", "g", 0)
	x, err := c.sched.Explain(c.s, ref, "n1")
	if err != nil {
		t.Fatal(err)
	}
	refusals := map[string]string{}
	for _, v := range x.Verdicts {
		if v.Why != "" {
			refusals[v.Stage] = v.Why
		}
	}
	if len(refusals) != 2 || refusals["reserved"] != "cordoned" || refusals["min-cpu"] != "not enough cpu" {
		t.Errorf("%v", refusals)
	}
	if _, err := c.sched.Explain(c.s, ref, "n9"); plimsoll.CodeOf(err) != plimsoll.CodeNotFound ||
		!strings.Contains(err.Error(), "plimsoll node list") {
		t.Errorf("an unknown node: %v", err)
	}
}

// BenchmarkTry runs the longest trials: the bound on work must end them after some 50 ms.
func BenchmarkTry(b *testing.B) {
	for _, nodes := range []int{1, 1000, 10_000, 100_000} {
		for _, name := range []string{"roomy", "full", "spread"} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, name), func(b *testing.B) {
				s := state.New(state.Config{}, leaves(plimsoll.QueueConfig{Name: "a"}))
				s.Begin(1, 1)
				for i := range nodes {
					n := &plimsoll.Node{
						ID: fmt.Sprintf("n%d", i), Incarnation: 1,
						Capacity: plimsoll.Resources{"cpu": 1 << 30, "memory": 1 << 40},
					}
					if name == "full" && i > 0 {
						n.Capacity = plimsoll.Resources{"cpu": 500}
					}
					if _, err := s.Register(n, "gw"); err != nil {
						b.Fatal(err)
					}
				}
				c := scheduler.New(s, 1)
				g := trialGroup("g", scheduler.MaxTrial, 1000)
				if name == "spread" {
					g.Constraints.Spread = []plimsoll.Spread{{By: "node", MaxSkew: 1}}
				}
				placed := 0
				var longest time.Duration
				for b.Loop() {
					began := time.Now()
					trial, err := c.Try(s, trialJob(g), "", 0)
					if err != nil {
						b.Fatal(err)
					}
					placed, longest = len(trial.Groups[0].Placed), max(longest, time.Since(began))
				}
				b.ReportMetric(float64(placed), "placed")
				b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
			})
		}
	}
}

// BenchmarkCapacities asks for the capacity of every node.
func BenchmarkCapacities(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			s := state.New(state.Config{}, leaves(plimsoll.QueueConfig{Name: "a"}))
			s.Begin(1, 1)
			for i := range nodes {
				n := &plimsoll.Node{
					ID: fmt.Sprintf("n%d", i), Incarnation: 1,
					Capacity: plimsoll.Resources{"cpu": 4000, "memory": 1 << 34},
				}
				if _, err := s.Register(n, "gw"); err != nil {
					b.Fatal(err)
				}
			}
			c := scheduler.New(s, 1)
			for b.Loop() {
				if _, err := c.Capacities(s, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
