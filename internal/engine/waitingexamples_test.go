package engine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// TestWaitingExamples submits the jobs of examples/waiting to two nodes. The explanation of each
// alone states the cause and the way out.
func TestWaitingExamples(t *testing.T) {
	w := newScenario(t)
	read := func(name string) []byte {
		data, err := os.ReadFile("../../examples/waiting/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	apply := func(name string) {
		queues, err := config.ParseQueues(name, read(name))
		if err != nil {
			t.Fatal(err)
		}
		w.turn(&engine.SetQueueConfig{Config: queues})
	}
	apply("queues")
	for _, id := range []string{"n1", "n2"} {
		w.node(id, map[string]string{"cpu": "4", "memory": "8Gi"})
	}
	for _, c := range []struct {
		file, code, why, unblock string
	}{
		{"0-first", "", "", ""},
		{"1-too-large", "too_large", "too large for every node", "add a node with at least cpu 64"},
		{"2-queue-max", "queue_max", "root.small is at its max: cpu 2 of 2", "cpu 1 more in root.small"},
		{
			"3-too-many-jobs", "queue_max", "root.one runs as many jobs as it may: 1 of 1",
			"raise maxapplications of root.one",
		},
		{
			"4-no-resource", "no_resource", "no node has nvidia.com/gpus",
			"add a node that has nvidia.com/gpus",
		},
		{"5-constraints", "not_eligible", "no node is for it", "loosen the constraints"},
		{
			"6-over-the-max", "queue_max", "more than the max of root.small: cpu 3 of 2",
			"raise the max of root.small to cpu 3",
		},
		{"7-retry", "retry", "wait for their next attempt", "plimsoll job logs retry"},
		{"8-far", "no_node", "2 of 2 nodes: ", "loosen the constraints"},
		{"9-full-cluster", "no_node", "not enough cpu", "nearest: n"},
		{"10-cordoned", "no_nodes", "2 of 2 nodes: cordoned", "plimsoll node uncordon NODE"},
		{
			"11-user-limit", "user_max", "more than the max of user carol in root.shared: cpu 2 of 1",
			"raise the max of user carol in root.shared to cpu 2",
		},
	} {
		spec, err := config.ParseJob(c.file, read(c.file))
		if err != nil {
			t.Fatal(err)
		}
		for i := range spec.Groups {
			spec.Groups[i].Count = max(spec.Groups[i].Count, 1)
		}
		switch c.code {
		case "user_max":
			apply("limits")
		case "no_nodes":
			for _, id := range []string{"n1", "n2"} {
				w.turn(&engine.SetNodeMode{ID: id, Mode: plimsoll.NodeCordoned})
			}
		}
		w.turn(&engine.SubmitJob{Spec: &spec})
		if c.code == "retry" {
			ref, _ := w.engine.State().FindTask("retry", "main", 0)
			w.report(
				[]string{ref.Task().Node, "retry.main.0", "finished"},
				map[string]string{"result": "failed", "exit": "1"},
			)
		}
		w.turn(nil)
		if c.code == "" {
			continue
		}
		w.printed.Reset()
		w.explainWaiting(spec.ID, "")
		for _, part := range []string{"\n" + c.code + ": ", c.why, c.unblock} {
			if !strings.Contains(w.printed.String(), part) {
				t.Errorf("%s: this does not say %q:\n%s", c.file, part, w.printed.String())
			}
		}
	}
}
