package gateway

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/archivetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// slowArchive is an archive that takes its time.
type slowArchive struct {
	*archivetest.Memory
	counts error           // error of Count; nil: it counts
	hang   bool            // Count does not end before its context
	tasks  []time.Duration // time of each page of tasks; later pages take that of the last one
	limit  time.Duration   // time at which a page of tasks fails, as that of a Reader does; 0: none
	asked  int
}

func (s *slowArchive) Count(ctx context.Context, q archive.JobQuery, most int) (int64, bool, error) {
	if s.hang {
		<-ctx.Done()
		return 0, false, ctx.Err()
	}
	if s.counts != nil {
		return 0, false, s.counts
	}
	return s.Memory.Count(ctx, q, most)
}

func (s *slowArchive) Tasks(
	ctx context.Context, q archive.TaskQuery,
) (page archive.Page[archive.Task, archive.TaskPosition], err error) {
	takes := s.tasks[min(s.asked, len(s.tasks)-1)]
	s.asked++
	limited, cancel := ctx, func() {}
	if s.limit > 0 {
		limited, cancel = context.WithTimeout(ctx, s.limit)
	}
	defer cancel()
	select {
	case <-time.After(takes):
	case <-limited.Done():
		return page, &plimsoll.Error{Code: plimsoll.CodeUnavailable, Msg: "it took too long", Err: limited.Err()}
	}
	q.Limit = 1 // as if the work for one task were that of a page
	page, err = s.Memory.Tasks(ctx, q)
	page.Partial = page.More
	return page, err
}

// A page that was read is not lost because the archive cannot count in time.
func TestAPageStaysIfTheArchiveIsTooSlowToCount(t *testing.T) {
	for name, slow := range map[string]slowArchive{
		"it hangs": {hang: true},
		"it gives up": {
			counts: plimsoll.Errorf(plimsoll.CodeUnavailable, "it took longer than 2s; try again"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				c := newCell(t)
				for i := range 3 {
					j := c.submit(fmt.Sprintf("gone%d", i), "ann", "root.x", nil, 1)
					c.end(j, 0)
					c.archived(j)
				}
				c.submit("here", "ann", "root.x", nil, 1)
				slow.Memory = c.archive
				s := c.serve(Config{Archive: &slow})
				req := &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ALL, Count: true, Limit: 2}
				got := must(t, s.jobs.ListJobs, req)
				if len(got.GetJobs()) != 2 || got.GetNext() == "" || !got.GetTotalAtLeast() ||
					got.GetTotal() < 2 || got.GetTotal() > 4 {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// A damaged archive has no count: an error that does not go away is told.
func TestACountOfADamagedArchiveFails(t *testing.T) {
	c := newCell(t)
	slow := slowArchive{Memory: c.archive, counts: plimsoll.Errorf(plimsoll.CodeCorrupt, "it is damaged")}
	s := c.serve(Config{Archive: &slow})
	_, err := call(s.jobs.ListJobs, &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ALL, Count: true})
	if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("%v", err)
	}
}

// An answer is made of several pages of the archive. It ends with those that came in time, and the
// list goes on behind them until each task was listed once.
func TestTasksOfASlowArchiveAreListedInParts(t *testing.T) {
	for name, slow := range map[string]slowArchive{
		"each page takes long":       {tasks: []time.Duration{1900 * time.Millisecond}},
		"a page hangs":               {tasks: []time.Duration{time.Second, time.Hour, 0}},
		"a page takes the last time": {tasks: []time.Duration{0, 4 * time.Second}},
		"a page is given up":         {tasks: []time.Duration{0, time.Hour, 0}, limit: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				c := newCell(t)
				for i := range 3 {
					j := c.submit(fmt.Sprintf("gone%d", i), "ann", "root.x", nil, 4)
					c.end(j, 0)
					c.archived(j)
				}
				slow.Memory = c.archive
				s := c.serve(Config{Archive: &slow})
				for _, req := range []*pb.ListTasksRequest{{Scope: pb.Scope_SCOPE_ALL}, {Job: "gone1"}} {
					slow.asked = 0
					want, seen := 12, map[string]int{}
					if req.Job != "" {
						want = 4
					}
					for answers := 0; ; answers++ {
						began := time.Now()
						got := must(t, s.jobs.ListTasks, req)
						if took := time.Since(began); took > archiveTimeout || answers > want {
							t.Fatalf("answer %d took %s", answers, took)
						}
						for _, task := range got.GetTasks() {
							seen[taskID(task)]++
						}
						if got.GetNext() == "" {
							break
						}
						if req.Cursor = got.GetNext(); req.Job != "" { // a list without cursors
							req.Cursor, req.After = "", got.GetNext()
						}
					}
					for id, n := range seen {
						if n != 1 {
							t.Errorf("%s is listed %d times", id, n)
						}
					}
					if len(seen) != want {
						t.Errorf("there are %d tasks, not %d: %v", len(seen), want, seen)
					}
				}
			})
		})
	}
}
