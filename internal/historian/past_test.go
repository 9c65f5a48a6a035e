package historian

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
)

// stored is a history that has one state of a fold.
type stored struct {
	history.Reader

	state []byte
}

func (s stored) At(context.Context, int64) ([]byte, func(func(history.Events) error) error, error) {
	return s.state, func(func(history.Events) error) error { return nil }, nil
}

// A cluster of the past is counted with at least the memory that it keeps, whichever lists are
// long.
func TestAClusterOfThePastIsCountedWithItsMemory(t *testing.T) {
	const count = 5000
	capacity := plimsoll.Resources{plimsoll.CPU: 1000, plimsoll.Memory: 1 << 30, "gpu": 1}
	for name, add := range map[string]func(s *fold.Snapshot, i int){
		"nodes": func(s *fold.Snapshot, i int) {
			s.AddNode(&plimsoll.Node{ID: fmt.Sprint("n", i), Capacity: capacity})
		},
		"queues": func(s *fold.Snapshot, i int) {
			s.AddQueue(&plimsoll.QueueStatus{Path: fmt.Sprint("root.q", i), Max: capacity, Guaranteed: capacity})
		},
		"tasks": func(s *fold.Snapshot, i int) {
			if i == 0 {
				job := plimsoll.Job{
					Spec: plimsoll.JobSpec{
						ID: "j", Queue: "root.a",
						Groups: []plimsoll.GroupSpec{{Name: "g", Count: count, Resources: capacity}},
					},
					Status: plimsoll.JobStatus{ID: "j", Queue: "root.a", State: plimsoll.JobRunning},
				}
				s.AddNode(&plimsoll.Node{ID: "n", Capacity: capacity})
				s.AddJob(&job)
			}
			s.AddTask(&plimsoll.Task{
				Job: "j", Group: "g", Index: int32(i), State: plimsoll.TaskRunning, Node: "n", Created: 1, Bound: 2,
			})
		},
		"jobs": func(s *fold.Snapshot, i int) {
			job := plimsoll.Job{
				Spec: plimsoll.JobSpec{
					ID: fmt.Sprint("j", i), Queue: "root.a",
					Groups: []plimsoll.GroupSpec{{Name: "g", Count: 1, Resources: capacity}},
				},
				Status: plimsoll.JobStatus{ID: fmt.Sprint("j", i), Queue: "root.a", State: plimsoll.JobAccepted},
			}
			s.AddJob(&job)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fold.NewSnapshot()
			for i := range count {
				add(s, i)
			}
			p := past{reader: stored{state: fold.Begin(s, 1).AppendState(nil)}, making: make(chan struct{}, 1)}
			before := heap()
			m, err := p.get(t.Context(), 5, time.Unix(100, 0), false)
			if err != nil {
				t.Fatal(err)
			}
			taken := heap() - before
			runtime.KeepAlive(p.reader)
			if long := len(m.view.Nodes) + len(m.view.Queues) + len(m.view.Jobs) + len(m.tasks); long < count {
				t.Fatalf("the lists have %d elements", long)
			}
			if m.bytes < taken || m.bytes > 10*taken {
				t.Errorf("it takes %d bytes, and is counted with %d", taken, m.bytes)
			}
			runtime.KeepAlive(m)
		})
	}
}

// heap returns the bytes of memory that are in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int(s.HeapAlloc)
}
