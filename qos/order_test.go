package qos

import (
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// TestOrderIsThatOfTheMetric: of equal class and priority, the preferred come first and the avoided
// last; among the rest the metric decides.
func TestOrderIsThatOfTheMetric(t *testing.T) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	policies := Compile([]plimsoll.Policy{
		{TaskQOS: &plimsoll.TaskQOS{Name: "first", Labels: map[string]string{"when": "first"}, Prefer: true}},
		{TaskQOS: &plimsoll.TaskQOS{Name: "last", Labels: map[string]string{"when": "last"}, Avoid: true}},
	}, registry, nil, Options{})
	task := func(id, when string, class plimsoll.Class, cpu, memory int64) Task {
		return Task{
			ID: id, Class: class, Labels: map[string]string{"when": when}, CPU: cpu, CPUKnown: true, Memory: memory,
			MemoryKnown: true,
		}
	}
	tasks := []Task{
		task("web", "first", plimsoll.ClassGuaranteed, 9*Core, 9),
		task("spared", "last", plimsoll.ClassBestEffort, 5*Core, 5),
		task("light", "", plimsoll.ClassBestEffort, Core, 4),
		task("heavy", "", plimsoll.ClassBestEffort, 2*Core, 3),
		task("given", "first", plimsoll.ClassBestEffort, 0, 0),
	}
	for metric, want := range map[string][]int32{
		CPUTotalUsage: {4, 3, 2, 1, 0}, MemoryTotalUsage: {4, 2, 3, 1, 0}, "nobodys": {4, 3, 2, 1, 0},
	} {
		if got := policies.Order(tasks, metric); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", metric, got, want)
		}
	}
}
