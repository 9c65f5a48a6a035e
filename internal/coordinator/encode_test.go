package coordinator

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// replayed runs an engine on random commands from a seed, and returns the bytes of every batch.
func replayed(t *testing.T, seed uint64) []byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, seed))
	s := state.New(state.Config{MaxEnded: 5, Limits: state.Limits{Ops: 200}}, plimsoll.DefaultQueues())
	e := engine.New(engine.Config{Seed: seed}, s, 0, 1)
	enc := encoder{epoch: 1}
	var all []byte
	var out engine.Batch
	now := int64(1e18)
	for i := range 3000 {
		now += rng.Int64N(1e9)
		commands := []engine.Command{{ID: uint64(i), Do: randomCommand(rng, s, i)}}
		for more := true; more; {
			var taken int
			taken, _, more = e.Turn(now, commands, &out)
			commands = commands[taken:]
			if out.Revision != 0 {
				all = wire.AppendBatch(all, enc.encode(&out))
			}
		}
	}
	return all
}

func randomCommand(rng *rand.Rand, s *state.State, i int) engine.Operation {
	node := fmt.Sprintf("n%d", rng.IntN(5))
	job := fmt.Sprintf("j%d", i-rng.IntN(40))
	switch rng.IntN(8) {
	case 0:
		return &engine.RegisterNode{Gateway: "g", Node: plimsoll.Node{
			ID: node, Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 8000, "memory": 32 << 30, "gpu": 2},
			Attributes: map[string]string{"rack": "r1", "os": "linux", "arch": "amd64"},
		}}
	case 1:
		return &engine.SetNodeMode{ID: node, Mode: plimsoll.NodeMode(1 + rng.IntN(3))}
	case 2:
		return &engine.KillJob{ID: job}
	case 3:
		return &engine.ScaleJob{ID: job, Group: "g0", Count: rng.Int32N(6)}
	case 4, 5:
		spec := &plimsoll.JobSpec{
			ID: fmt.Sprintf("j%d", i), Owner: "alice", Queue: []string{"root.batch", "root.default"}[rng.IntN(2)],
			Labels: map[string]string{"team": "x", "stage": "y", "kind": "z"},
		}
		for g := range 1 + rng.IntN(3) {
			spec.Groups = append(spec.Groups, plimsoll.GroupSpec{
				Name: fmt.Sprintf("g%d", g), Count: rng.Int32N(6), Command: []string{"true"},
				Env: map[string]string{"A": "1", "B": "2", "C": "3"},
				Resources: plimsoll.Resources{
					"cpu": int64(100 * (1 + rng.IntN(30))), "memory": 1 << 30, "gpu": int64(rng.IntN(2)),
				},
				Retry: plimsoll.RetryPolicy{Kind: plimsoll.RetryBackoff, Limit: 2},
			})
		}
		return &engine.SubmitJob{Spec: spec}
	}
	return randomReports(rng, s, i)
}

func randomReports(rng *rand.Rand, s *state.State, i int) engine.Operation {
	cmd := &engine.ReportTasks{Node: fmt.Sprintf("n%d", rng.IntN(5)), Incarnation: 1}
	for back := range 40 {
		j := s.Job(fmt.Sprintf("j%d", i-back))
		if j == nil || len(j.Groups[0].Tasks) == 0 {
			continue
		}
		task := &j.Groups[0].Tasks[0]
		r := engine.Report{Job: j.Spec.ID, Group: "g0"}
		r.Attempt, r.State, r.Result = task.Attempt, plimsoll.TaskFinished, plimsoll.TaskResult(1+rng.IntN(10))
		cmd.Node = task.Node
		cmd.Reports = append(cmd.Reports, r)
	}
	return cmd
}

// The same seed and the same inputs give the same batches, byte for byte.
func TestSameInputsSameBytes(t *testing.T) {
	a, b := replayed(t, 5), replayed(t, 5)
	if len(a) < 100_000 {
		t.Fatalf("the batches are %d bytes: the test tests nothing", len(a))
	}
	if !bytes.Equal(a, b) {
		t.Fatal("two runs differ")
	}
	if bytes.Equal(a, replayed(t, 6)) {
		t.Fatal("another seed gives the same")
	}
}
