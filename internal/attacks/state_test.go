package attacks

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// submit submits a job and returns the error.
func (f *fleet) submit(t *testing.T, spec plimsoll.JobSpec) error {
	t.Helper()
	_, err := f.client(once).SubmitJob(t.Context(), spec)
	return err
}

// exhausted wants an error that names a bound.
func exhausted(t *testing.T, err error, bound string) {
	t.Helper()
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), bound) {
		t.Errorf("the answer is %v; a refusal that names the bound %q is wanted", err, bound)
	}
}

// millionsOfTasks submits jobs of a million tasks each: 150 bytes a job.
func millionsOfTasks(t *testing.T, f *fleet) {
	const jobs = 7
	count := int32(testrun.Count(20_000, 50_000, 1_000_000))
	var last error
	for n := range jobs {
		last = f.submit(t, plimsoll.JobSpec{ID: fmt.Sprintf(
			"million-%d", n,
		), Owner: "mallory", Queue: "root.mallory", Groups: []plimsoll.GroupSpec{{
			Name: "main", Count: count, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 1_000_000},
		}}})
	}
	if testrun.Soak() {
		exhausted(t, last, "tasks")
	}
}

// largeJobs submits jobs of nearly a megabyte.
func largeJobs(t *testing.T, f *fleet) {
	text := strings.Repeat("x", 60<<10)
	var groups []plimsoll.GroupSpec
	for n := range 15 {
		groups = append(groups, plimsoll.GroupSpec{
			Name: fmt.Sprintf("g%d", n), Count: 1, Command: []string{"true", text},
			Resources: plimsoll.Resources{"cpu": 1_000_000},
		})
	}
	jobs := testrun.Count(50, 100, 1_130)
	atOnce(jobs, 8, func(n int) {
		// Beyond the bound on bytes it is refused. The canary shows that no other request is.
		_ = f.submit(
			t,
			plimsoll.JobSpec{ID: fmt.Sprintf("large-%d", n), Owner: "mallory", Queue: "root.mallory", Groups: groups},
		)
	})
	// Ended jobs count too.
	atOnce(jobs, 8, func(n int) {
		// refused jobs do not exist
		_, _ = f.client(once).KillJob(t.Context(), fmt.Sprintf("large-%d", n), "")
	})
	// as above
	atOnce(7, 1, func(n int) { _, _ = f.client(once).KillJob(t.Context(), fmt.Sprintf("million-%d", n), "") })
}

// madeUpResources submits jobs of one task with resources that no node has, and then a job with
// GPUs.
func madeUpResources(t *testing.T, f *fleet) {
	for n := range 40 {
		if err := f.submit(t, plimsoll.JobSpec{ID: fmt.Sprintf(
			"made-up-%d", n,
		), Owner: "mallory", Queue: "root.mallory", Groups: []plimsoll.GroupSpec{{
			Name: "main", Count: 1, Command: []string{"true"},
			Resources: plimsoll.Resources{fmt.Sprintf("example.com/r%d", n): 1},
		}}}); err != nil {
			t.Errorf("a job of one task: %v", err)
		}
	}
	if err := f.submit(t, plimsoll.JobSpec{
		ID: "gpus", Owner: "alice", Queue: "root.alice", Groups: []plimsoll.GroupSpec{{
			Name: "main", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"nvidia.com/gpu": 1},
		}},
	}); err != nil {
		t.Errorf("a job for GPUs: %v", err)
	}
}

// dryRuns asks where tasks would go, from sixteen callers at once.
func dryRuns(t *testing.T, f *fleet) {
	spec := plimsoll.JobSpec{ID: "dry", Owner: "mallory", Queue: "root.mallory", Groups: []plimsoll.GroupSpec{{
		Name: "main", Count: 1000, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 10},
	}}}
	c := f.client(once)
	var answered atomic.Int64
	atOnce(testrun.Count(50, 200, 5_000), 16, func(int) {
		// some are refused for lack of room
		if _, err := c.PlaceJob(t.Context(), spec, client.PlaceOptions{}); err == nil {
			answered.Add(1)
		}
	})
	if t.Logf("%d were answered", answered.Load()); answered.Load() == 0 {
		t.Error("no dry run was answered")
	}
}
