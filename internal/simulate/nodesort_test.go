package simulate_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// TestNodeSortOfAQueueFile places six tasks on three nodes in each order, and after a reload.
func TestNodeSortOfAQueueFile(t *testing.T) {
	const scenario = `[{"name": "a", "queues": "partitions: [{name: default, queues: [{name: root, queues: [{name: a}]}]}]",
		"steps": [
		{"node": {"id": "n", "count": 3, "capacity": {"cpu": "4", "memory": "8Gi"}}},
		{"submit": {"job": "j", "queue": "root.a", "owner": "ann",
			"tasks": [{"group": "t", "count": 6, "resources": {"cpu": "1", "memory": "1Gi"}}]}},
		{"settle": true}, {"expect": {"nodesSorted": [%s]}},
		{"kill": "j"}, {"settle": true},
		{"reload": {"queues": "partitions: [{name: default, queues: [{name: root, queues: [{name: a}]}]}]"}},
		{"submit": {"job": "k", "queue": "root.a", "owner": "ann",
			"tasks": [{"group": "t", "count": 6, "resources": {"cpu": "1", "memory": "1Gi"}}]}},
		{"settle": true}, {"expect": {"nodesSorted": [%s]}}]}]`
	for binpacking, want := range map[bool]string{false: "2000, 2000, 2000", true: "4000, 2000, 0"} {
		list, err := simulate.ParseScenarios(fmt.Appendf(nil, scenario, want, want))
		if err != nil {
			t.Fatal(err)
		}
		parse := func(name string, data []byte) (plimsoll.QueueConfig, error) {
			c, err := config.ParseQueues(name, data)
			c.Partition = &plimsoll.PartitionConfig{NodeSort: &plimsoll.NodeSort{Binpacking: binpacking}}
			return c, err
		}
		differences, err := simulate.RunScenario(&list[0], parse, testrun.Seed(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range differences {
			t.Errorf("binpacking %v, step %d: %s: want %s, got %s", binpacking, d.Step, d.What, d.Want, d.Got)
		}
	}
}
