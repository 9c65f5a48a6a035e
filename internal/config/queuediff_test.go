package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

// TestDiffQueues: each field that differs is a line, and queues that jobs made or that drain are no
// part of a configuration.
func TestDiffQueues(t *testing.T) {
	before := plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{
		{Name: "a", MaxJobs: 3, Max: plimsoll.Resources{"cpu": 1000}},
		{Name: "b"},
		{Name: "made", Dynamic: true},
		{Name: "old", Draining: true},
	}}
	after := plimsoll.QueueConfig{
		Name: "root", Parent: true, SubmitAccess: &plimsoll.AccessList{Users: []string{"ann"}},
		Partition: &plimsoll.PartitionConfig{Rules: []plimsoll.PlacementRule{{Name: "user"}}},
		Queues: []plimsoll.QueueConfig{
			{Name: "a", Max: plimsoll.Resources{"cpu": 1500}},
			{Name: "c", Properties: map[string]string{"order": "strict"}},
		},
	}
	changes, err := config.DiffQueues(&before, &after)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, c := range changes {
		fmt.Fprintln(&got, c)
	}
	const want = `all queues: placementrules is [{"name":"user"}]
root: submitacl is "ann"
root.a: maxapplications was 3
root.a: resources was {"max":{"vcore":1}}, is {"max":{"vcore":"1500m"}}
root.b is removed
root.c is added
root.c: properties is {"order":"strict"}
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if changes, err := config.DiffQueues(&after, &after); err != nil || len(changes) > 0 {
		t.Errorf("the same twice: %v, %v", changes, err)
	}
}
