package engine_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// handed is an attempt that an agent is told to run.
type handed struct {
	attempt int32
	node    string
	key     string // of the node
}

// claim lets an agent register a node: mostly the agent of that node. Sometimes it is another one,
// one of a version without keys, or one with an incarnation from the future.
func (w *world) claim(node *plimsoll.Node) {
	key := "agent" + strconv.Itoa(w.rng.IntN(3))
	if n := w.engine.State().Node(node.ID); n != nil && w.rng.IntN(4) > 0 {
		key = n.Key
	}
	switch w.rng.IntN(12) {
	case 0:
		node.Incarnation = math.MaxUint64 - uint64(w.rng.IntN(2))
	case 1:
		key = ""
	}
	if node.Key = key; key != "" {
		node.Session = key + "-" + strconv.FormatUint(node.Incarnation, 10)
	}
}

// checkHanded checks that no attempt is handed to agents with two keys. It also checks that no
// incarnation is so high that a later start could not exceed it.
func (w *world) checkHanded() {
	s := w.engine.State()
	now := map[string]handed{}
	for _, id := range w.jobs {
		j := s.Job(id)
		if j == nil {
			continue
		}
		for g := range j.Groups {
			for i := range j.Groups[g].Tasks {
				t := (state.Ref{Group: &j.Groups[g], Index: int32(i)}).Task()
				if !t.State.OnNode() {
					continue
				}
				n := s.Node(t.Node)
				is, was := handed{t.Attempt, t.Node, n.Key}, w.handed[t.ID]
				if was.attempt == is.attempt && was.node != "" && was != is && was.key != "" {
					w.t.Fatalf(
						"attempt %d of %s was handed to %+v, and now to %+v: it could start twice", t.Attempt, t.ID,
						was, is,
					)
				}
				now[t.ID] = is
				if last := uint64(w.now/1e6 + 86_400_000); n.Incarnation > last {
					w.t.Fatalf(
						"node %s has incarnation %d, and %d is the last that is believed", n.ID, n.Incarnation, last,
					)
				}
			}
		}
	}
	w.handed = now
}

// The simulation must have reached the cases that it tests.
func TestSimulationSeesKeysChange(t *testing.T) {
	w := newWorld(t, 7, state.Limits{})
	keys := map[string]string{}
	changed, refused := 0, 0
	for range testrun.Count(1_000, 4_000, 40_000) {
		w.step()
		for i := range w.out.Replies {
			if plimsoll.CodeOf(w.out.Replies[i].Err) == plimsoll.CodeConflict {
				refused++
			}
		}
		for _, id := range []string{"n0", "n1", "n2", "n3", "n4", "n5"} {
			if n := w.engine.State().Node(id); n != nil {
				if was := keys[id]; was != "" && was != n.Key {
					changed++
				}
				keys[id] = n.Key
			}
		}
	}
	if changed == 0 || refused == 0 {
		t.Errorf("keys changed %d times, and %d were refused", changed, refused)
	}
}
