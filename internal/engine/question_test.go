package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// firstQuestion is the id of the first question, above those of all commands.
const firstQuestion = 1 << 40

// question is something that may be asked at any time.
func (w *world) question(rng *rand.Rand) engine.Operation {
	name := func() string { return w.jobs[rng.IntN(len(w.jobs))] }
	switch rng.IntN(4) {
	case 0:
		return &engine.NodeCapacity{}
	case 1:
		return &engine.Explain{Job: name(), Group: "g", Index: int32(rng.IntN(3)), Node: "n1", Export: true}
	}
	g := plimsoll.GroupSpec{Name: "g", Count: rng.Int32N(40), Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": rng.Int64N(800)}}
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
	spec := &plimsoll.JobSpec{ID: name(), Owner: "alice", Queue: "root.default", Labels: map[string]string{"app": "db"}, Groups: []plimsoll.GroupSpec{g, g}}
	spec.Groups[1].Name = "h"
	return &engine.PlaceJob{Spec: spec, Group: []string{"", "g"}[rng.IntN(2)], Count: rng.Int32N(30)}
}

// relate gives some of the jobs that are about to be submitted something that others could disturb.
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

// plainTurn is turn without the checks that know nothing of constraints.
func (w *world) plainTurn() {
	taken, _, _ := w.engine.Turn(w.now, w.queue, &w.out)
	w.queue = w.queue[taken:]
	if err := w.engine.State().Check(); err != nil {
		w.t.Fatalf("after a turn: %v", err)
	}
	if err := w.records.commit(&w.out.Changes); err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(w.log, "%d %+v %+v %+v\n", w.out.Revision, w.out.Changes.Tasks, w.out.Changes.JobStatuses, w.out.Changes.Events)
}

// Questions change nothing: with any number of them in between, the batches, the choices of nodes, the reasons why tasks wait and the
// state are those that they are without.
func TestQuestionsChangeNothing(t *testing.T) {
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			answered := 0
			run := func(ask bool) string {
				w := newWorld(t, seed, state.Limits{})
				w.log = &bytes.Buffer{}
				rng := rand.New(rand.NewPCG(seed, 99))
				for i := range 2000 {
					w.now += w.rng.Int64N(3e9)
					w.command()
					w.relate()
					for n := rng.IntN(3); ask && n > 0; n-- {
						w.queue = append(w.queue, engine.Command{ID: firstQuestion + uint64(i), Do: w.question(rng)})
					}
					w.plainTurn()
					for _, r := range w.out.Replies {
						if r.ID >= firstQuestion && r.Err == nil {
							answered++
						}
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
				t.Fatalf("without questions (one) it is otherwise than with them (other):\n%s", firstDifference(without, with))
			}
			if answered < 1000 {
				t.Errorf("only %d questions were answered: the test tests little", answered)
			}
		})
	}
}

// Many dry runs and plans at once are answered over several turns, in their order, and hold up no command that comes with them.
func TestQuestionsHoldUpNoCommand(t *testing.T) {
	w := newWorld(t, 1, state.Limits{})
	g := plimsoll.GroupSpec{Name: "g", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 1}}
	spec := &plimsoll.JobSpec{ID: "asked", Owner: "alice", Queue: "root.default", Groups: []plimsoll.GroupSpec{g}}
	var commands []engine.Command
	add := func(do engine.Operation) {
		commands = append(commands, engine.Command{ID: uint64(len(commands) + 1), Do: do})
	}
	add(&engine.NodeCapacity{})
	for range 3 {
		add(&engine.PlaceJob{Spec: spec, Count: 1})
		add(&engine.PlanMoves{Limit: 1})
	}
	add(&engine.KillJob{ID: "none"})
	var got [][]uint64
	for more := true; more; {
		var taken int
		taken, _, more = w.engine.Turn(w.now, commands, &w.out)
		commands = commands[taken:]
		var ids []uint64
		for _, r := range w.out.Replies {
			ids = append(ids, r.ID)
		}
		got = append(got, ids)
	}
	if want := "[[1 8 2] [3] [4] [5] [6] [7]]"; fmt.Sprint(got) != want {
		t.Errorf("answered by turn: %v, want %s", got, want)
	}
}
