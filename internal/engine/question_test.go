package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
)

// question is a question that may come at any time.
type question struct {
	spec    *plimsoll.JobSpec
	group   string
	count   int32
	node    string
	subject scheduler.Subject // of what is to be explained
	known   bool              // there is such a task
}

// question draws a question about the state after the last turn.
func (w *world) question(rng *rand.Rand) question {
	name := func() string { return w.jobs[rng.IntN(len(w.jobs))] }
	q := question{group: []string{"", "g"}[rng.IntN(2)], count: rng.Int32N(30), node: []string{"", "n1"}[rng.IntN(2)]}
	var err error
	q.subject, err = w.engine.Subject(name(), "g", int32(rng.IntN(3)))
	q.known = err == nil
	g := plimsoll.GroupSpec{
		Name: "g", Count: rng.Int32N(40), Command: []string{"true"},
		Resources: plimsoll.Resources{"cpu": rng.Int64N(800)},
	}
	switch rng.IntN(4) {
	case 0:
		g.Resources[fmt.Sprintf("example.com/r%d", rng.IntN(20))] = 1
	case 1:
		g.Constraints.Spread = []plimsoll.Spread{{By: []string{"node", "rack", "zone"}[rng.IntN(3)], MaxSkew: 1}}
		g.Constraints.Near = []plimsoll.Selector{{Job: name()}}
	case 2:
		g.Preferences.Far = []plimsoll.Selector{{Label: "app=db"}, {Task: name() + ".g.0"}}
		g.Constraints.VolumesFrom = []string{name() + ".g.0"}
	}
	q.spec = &plimsoll.JobSpec{
		ID: name(), Owner: "alice", Queue: "root.default", Labels: map[string]string{"app": "db"},
		Groups: []plimsoll.GroupSpec{g, g},
	}
	q.spec.Groups[1].Name = "h"
	return q
}

// ask asks all parts of a question, and returns the answers as a text.
func (q *question) ask(v *scheduler.View) string {
	var b strings.Builder
	if q.known {
		x, err := v.Explain(&q.subject, q.node)
		fmt.Fprintf(&b, "explain: %v %+v %v %s %+v %+v\n", err, x.Task, x.Code, x.Summary, x.Explanation, x.Verdicts)
		if x.Decision != nil {
			record, err := fleetjson.WriteDecision(x.Decision.Record())
			fmt.Fprintf(&b, "decision: %v %s\n", err, record)
		}
	}
	trial, err := v.Try(q.spec, q.group, int(q.count))
	fmt.Fprintf(&b, "place: %v\n", err)
	if err == nil {
		for i := range trial.Groups {
			g := &trial.Groups[i]
			fmt.Fprintf(&b, "  %s %d %v %s %s %v", g.Name, g.Asked, g.Code, g.Summary, trial.QueueReason, g.Stopped)
			for k, p := range g.Placed {
				fmt.Fprintf(&b, " %+v %v", p, g.Free(k))
			}
			if g.Why != nil {
				fmt.Fprintf(&b, " %+v", *g.Why)
			}
			b.WriteString("\n")
		}
	}
	capacities, err := v.Capacities(nil)
	fmt.Fprintf(&b, "capacity: %v %+v\n", err, capacities)
	for _, spec := range []*plimsoll.JobSpec{nil, q.spec} {
		plan, err := v.PlanMoves(spec, "g", 5)
		fmt.Fprintf(&b, "plan: %v %+v\n", err, plan)
	}
	return b.String()
}

// relate gives constraints that depend on other tasks to some of the jobs to be submitted.
func (w *world) relate() {
	for i := range w.queue {
		submit, ok := w.queue[i].Do.(*engine.SubmitJob)
		if !ok {
			continue
		}
		g := &submit.Spec.Groups[0]
		switch submit.Spec.ID[1] {
		case '1':
			g.Constraints.Spread = []plimsoll.Spread{{By: "node", MaxSkew: 2}}
		case '2':
			g.Constraints.Far = []plimsoll.Selector{{Job: "j5"}}
		}
		submit.Spec.Labels = map[string]string{"app": "db"}
	}
}

// plainTurn is turn without the checks that ignore constraints.
func (w *world) plainTurn() {
	taken, _, _ := w.engine.Turn(w.now, w.queue, &w.out)
	w.queue = w.queue[taken:]
	if err := w.engine.State().Check(); err != nil {
		w.t.Fatalf("after a turn: %v", err)
	}
	if err := w.records.commit(&w.out.Changes); err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(
		w.log, "%d %+v %+v %+v\n", w.out.Revision, w.out.Changes.Tasks, w.out.Changes.JobStatuses, w.out.Changes.Events,
	)
}

// Questions and copies change nothing. With any number of them between turns, the batches, the
// chosen nodes, the causes of waiting and the state are the same as without them.
func TestQuestionsChangeNothing(t *testing.T) {
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			answered := 0
			run := func(ask bool) string {
				w := newWorld(t, seed, state.Limits{})
				w.log = &bytes.Buffer{}
				rng := rand.New(rand.NewPCG(seed, 99))
				var copied *scheduler.Copy
				for i := range testrun.Count(400, 2_000, 20_000) {
					w.now += w.rng.Int64N(3e9)
					w.command()
					w.relate()
					w.plainTurn()
					if ask && i%3 == 0 {
						q := w.question(rng)
						answered += len(q.ask(w.engine.View())) / 100
					}
					if ask && i%5 == 0 {
						copied, _ = w.engine.Copy() // some are given up
					} else if copied != nil && copied.Continue(1) {
						q := w.question(rng)
						q.known = false
						q.ask(copied.View(w.records))
						copied = nil
					}
					if i%100 == 0 {
						text, err := dump(w.engine.State())
						if err != nil {
							t.Fatal(err)
						}
						w.log.WriteString(text)
					}
				}
				return w.log.String()
			}
			without, with := run(false), run(true)
			if without != with {
				t.Fatalf(
					"without questions (one) it is otherwise than with them (other):\n%s",
					firstDifference(without, with),
				)
			}
			if answered < 1000 && !testrun.Quick() {
				t.Errorf("only %d questions were answered: the test tests little", answered)
			}
		})
	}
}

// An answer from a copy is the same as from the state at the copy's revision. Turns may go by while
// the copy is made, in parts of any size, and after it is whole. The same holds for each view of
// the copy, and for repeated questions.
func TestAnswersFromACopyAreThoseOfTheState(t *testing.T) {
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWorld(t, seed, state.Limits{})
			w.log = &bytes.Buffer{}
			rng := rand.New(rand.NewPCG(seed, 98))
			compared, late := 0, 0
			for range testrun.Count(30, 150, 1_500) {
				for range rng.IntN(8) {
					w.anyTurn()
				}
				questions, want := make([]question, 4), make([]string, 4)
				for i := range questions {
					questions[i] = w.question(rng)
					want[i] = questions[i].ask(w.engine.View())
				}
				copied, revision := w.engine.Copy()
				records := w.records.clone()
				turns := 0
				for ; !copied.Continue(rng.IntN(3)); turns++ {
					w.anyTurn()
				}
				if w.anyTurn(); w.out.Revision > revision+1 {
					late++
				}
				for range 2 {
					view := copied.View(records)
					for i := range questions {
						if got := questions[i].ask(view); got != want[i] {
							t.Fatalf("of revision %d, after %d turns more, from the state (one) and the copy (other):\n%s", revision, turns,
								firstDifference(want[i], got))
						}
						compared++
					}
				}
			}
			if late < 50 && !testrun.Quick() {
				t.Errorf(
					"only %d of %d answers came after the state had gone on: the test tests little", late, compared,
				)
			}
		})
	}
}

// anyTurn is a turn with random commands.
func (w *world) anyTurn() {
	w.now += w.rng.Int64N(3e9)
	w.command()
	w.relate()
	w.plainTurn()
}
