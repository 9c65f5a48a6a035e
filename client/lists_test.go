package client

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

// TestRequestsHaveEveryFieldOfAFilter fills filters and looks for fields of requests that stay
// empty.
func TestRequestsHaveEveryFieldOfAFilter(t *testing.T) {
	var jobs JobFilter
	var tasks TaskFilter
	fill.Fill(&jobs, fill.Options{})
	fill.Fill(&tasks, fill.Options{})
	for _, c := range []struct {
		request proto.Message
		empty   string // fields that a filter does not have
	}{
		{jobs.request(&pb.Consistency{}), "after cursor"},
		{tasks.request(&pb.Consistency{}), "after cursor"},
		{jobsRequest(jobs, &pb.WatchPoint{}, true), ""},
		{tasks.watch(&pb.WatchPoint{}), ""},
	} {
		m := c.request.ProtoReflect()
		var empty []string
		for i := range m.Descriptor().Fields().Len() {
			if f := m.Descriptor().Fields().Get(i); !m.Has(f) {
				empty = append(empty, string(f.Name()))
			}
		}
		if strings.Join(empty, " ") != c.empty {
			t.Errorf("%s: %v stay empty, want %s", m.Descriptor().Name(), empty, c.empty)
		}
	}
}

// The scopes and orders have the numbers of the API.
func TestScopesAndOrdersAreThoseOfTheAPI(t *testing.T) {
	if ScopeActive != Scope(pb.Scope_SCOPE_ACTIVE) || ScopeEnded != Scope(pb.Scope_SCOPE_ENDED) ||
		ScopeAll != Scope(pb.Scope_SCOPE_ALL) {
		t.Error("scopes differ")
	}
	if SortSubmitted != JobSort(pb.JobSort_JOB_SORT_SUBMITTED) ||
		SortFinished != JobSort(pb.JobSort_JOB_SORT_FINISHED) ||
		SortID != JobSort(pb.JobSort_JOB_SORT_ID) {
		t.Error("orders of jobs differ")
	}
	if TaskSortID != TaskSort(pb.TaskSort_TASK_SORT_ID) ||
		TaskSortFailedFirst != TaskSort(pb.TaskSort_TASK_SORT_FAILED_FIRST) ||
		TaskSortFinished != TaskSort(pb.TaskSort_TASK_SORT_FINISHED) {
		t.Error("orders of tasks differ")
	}
}

// A list with damaged jobs is read to its end, and then says which are lost.
func TestAListNamesTheJobsThatTheArchiveCannotRead(t *testing.T) {
	pages := [][]int{{1, 2}, {}, {3}}
	damaged := [][]string{{"u1"}, {"u2", "u3", "u4"}, {"u5", "u6"}}
	var got []int
	var failed error
	for n, err := range paged(func(next string) ([]int, string, []string, error) {
		at := len(next)
		return pages[at], strings.Repeat("x", (at+1)%len(pages)), damaged[at], nil
	}) {
		if failed = err; err == nil {
			got = append(got, n)
		}
	}
	if !slices.Equal(got, []int{1, 2, 3}) || plimsoll.CodeOf(failed) != plimsoll.CodeCorrupt ||
		!strings.Contains(failed.Error(), "lacks 6 jobs") || !strings.Contains(failed.Error(), "u4, u5 and 1 more") {
		t.Errorf("got %v, %v", got, failed)
	}
	broken := errors.New("broken")
	for _, err := range paged(func(string) ([]int, string, []string, error) { return nil, "", nil, broken }) {
		if !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	}
}
