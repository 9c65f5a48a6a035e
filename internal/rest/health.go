package rest

import (
	"fmt"
	"maps"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// healthInfo is the answer to /scheduler/healthcheck. Its names begin with capitals.
type healthInfo struct {
	Healthy      bool
	HealthChecks []healthCheck
}

type healthCheck struct {
	Name             string
	Succeeded        bool
	Description      string
	DiagnosisMessage string
}

// namedNodes bounds the nodes that a diagnosis names.
const namedNodes = 10

// faults are the nodes that fail a check.
type faults struct {
	count int
	names []string
}

func (f *faults) add(node string) {
	if f.count++; len(f.names) < namedNodes {
		f.names = append(f.names, node)
	}
}

func (f *faults) check(name, description string) healthCheck {
	c := healthCheck{Name: name, Succeeded: f.count == 0, Description: description}
	if f.count > 0 {
		c.DiagnosisMessage = fmt.Sprintf("%d nodes, such as %s", f.count, strings.Join(f.names, ", "))
	}
	return c
}

// health compares the records of one revision with each other.
func (a *reading) health() error {
	var silent, negative, over faults
	allocated, tasks := amounts{}, int64(0)
	for id := range a.records.Scan(wire.KindNode, "", "") {
		node, status, err := a.nodeRecords(id)
		if err != nil {
			return err
		}
		if !node.Ready && node.Mode == plimsoll.NodeActive {
			silent.add(id)
		}
		below, above := false, false
		for name, n := range status.Allocated {
			below = below || n < 0
			above = above || n > node.Capacity[name]
		}
		if below {
			negative.add(id)
		}
		if above {
			over.add(id)
		}
		allocated.add(status.Allocated, 1)
		tasks += int64(status.Tasks)
	}
	var of plimsoll.QueueStatus
	if data, has := a.records.Get(wire.KindQueueStatus, plimsoll.RootQueue); has {
		var err error
		if of, err = wire.DecodeQueueStatus(data); err != nil {
			return undecodable(plimsoll.RootQueue, err)
		}
	}
	checks := []healthCheck{
		silent.check("Failed nodes", "The agent of each active node is connected"),
		negative.check("Negative resources", "No amount that is allocated on a node is negative"),
		over.check("Node resources", "No more is allocated on a node than it has"),
		sums(allocated, amountsOf(of.Allocated)),
		counts(tasks, int64(of.Running)),
		archive(a.records.ArchiveTrouble()),
	}
	answer := healthInfo{Healthy: true, HealthChecks: checks}
	for _, c := range checks {
		answer.Healthy = answer.Healthy && c.Succeeded
	}
	return a.add(answer)
}

func sums(nodes, queue amounts) healthCheck {
	zero := func(_ string, n int64) bool { return n == 0 }
	maps.DeleteFunc(nodes, zero)
	maps.DeleteFunc(queue, zero)
	c := healthCheck{
		Name: "Consistency of data", Description: "As much is allocated on all nodes as in the root queue",
		Succeeded: maps.Equal(nodes, queue),
	}
	if !c.Succeeded {
		c.DiagnosisMessage = fmt.Sprintf("the nodes have %v, the root queue %v",
			map[string]int64(nodes), map[string]int64(queue))
	}
	return c
}

func counts(nodes, queue int64) healthCheck {
	c := healthCheck{
		Name: "Orphan allocations", Description: "The nodes have as many tasks as the root queue",
		Succeeded: nodes == queue,
	}
	if !c.Succeeded {
		c.DiagnosisMessage = fmt.Sprintf("the nodes have %d, the root queue %d", nodes, queue)
	}
	return c
}

func archive(trouble string) healthCheck {
	return healthCheck{
		Name: "Archive", Description: "The archive of ended jobs, if there is one, takes them",
		Succeeded: trouble == "", DiagnosisMessage: trouble,
	}
}
