package ring

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// workload makes the events of jobs in turns, like a busy cluster. A job is submitted in one turn,
// its tasks are bound in another, and they end in later ones, mixed with those of other jobs.
type workload struct {
	tasks     int // of a job
	job       int
	now       int64
	resources plimsoll.Resources
	turn      []plimsoll.Event
	random    uint64
}

func newWorkload(tasks int) *workload {
	return &workload{
		tasks: tasks, now: 1_700_000_000_000_000_000,
		resources: plimsoll.Resources{plimsoll.CPU: 500, plimsoll.Memory: 64 << 20, plimsoll.Disk: 1 << 30}, random: 1,
	}
}

func (l *workload) node() string {
	l.random = l.random*6364136223846793005 + 1442695040888963407
	return fmt.Sprintf("node-%05d", l.random>>33%10_000)
}

func (l *workload) add(
	kind plimsoll.EventType, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, object, reference string,
	r plimsoll.Resources,
) {
	l.turn = append(l.turn, plimsoll.Event{
		Type: kind, Change: change, Detail: detail, Time: l.now, Object: object, Reference: reference, Resources: r,
	})
}

// next makes the events of one whole job: its submission, the binding of its tasks, and their ends.
func (l *workload) next() (submitted, bound, ended []plimsoll.Event) {
	job := fmt.Sprintf("pipeline-%07d", l.job)
	l.job++
	nodes := make([]string, l.tasks)
	cut := func() (turn []plimsoll.Event) {
		turn, l.turn, l.now = l.turn, nil, l.now+7_123_456
		return turn
	}
	l.add(plimsoll.EventApp, plimsoll.ChangeAdd, 0, job, "", nil)
	l.turn[len(l.turn)-1].Head = &plimsoll.JobHead{
		UID: plimsoll.MakeUID(l.now, uint64(l.job)*7+1_000_000), Owner: fmt.Sprintf("team-%02d", l.job%40),
	}
	l.add(plimsoll.EventQueue, plimsoll.ChangeAdd, plimsoll.QueueApp, "root.batch", job, nil)
	l.add(plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppNew, job, "", nil)
	for i := range nodes {
		l.add(
			plimsoll.EventApp, plimsoll.ChangeAdd, plimsoll.AppRequest, job, plimsoll.TaskID(job, "main", int32(i)),
			l.resources,
		)
	}
	l.add(plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppAccepted, job, "", nil)
	submitted = cut()
	for i := range nodes {
		nodes[i] = l.node()
		task := plimsoll.TaskID(job, "main", int32(i))
		l.add(plimsoll.EventNode, plimsoll.ChangeAdd, plimsoll.NodeAlloc, nodes[i], task, l.resources)
		l.add(plimsoll.EventApp, plimsoll.ChangeAdd, plimsoll.AppAlloc, job, task, l.resources)
		l.add(plimsoll.EventApp, plimsoll.ChangeRemove, plimsoll.AppRequest, job, task, l.resources)
	}
	l.add(plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppStarting, job, "", nil)
	bound = cut()
	for i := range nodes {
		i = i * 37 % l.tasks // tasks end in another order than they began
		task := plimsoll.TaskID(job, "main", int32(i))
		l.add(plimsoll.EventNode, plimsoll.ChangeRemove, plimsoll.NodeAlloc, nodes[i], task, l.resources)
		l.add(plimsoll.EventApp, plimsoll.ChangeRemove, plimsoll.AllocCancel, job, task, l.resources)
	}
	l.add(plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppCompleted, job, "", nil)
	return submitted, bound, cut()
}

// turns splits the events of many jobs into turns. The ends of several jobs are interleaved, with
// perTurn tasks of each job in a turn.
func (l *workload) turns(jobs, perTurn int) (turns [][]plimsoll.Event) {
	ends := make([][]plimsoll.Event, jobs)
	for i := range ends {
		var submitted, bound []plimsoll.Event
		submitted, bound, ends[i] = l.next()
		turns = append(turns, submitted, bound)
	}
	for at := 0; at < 2*l.tasks+1; at += 2 * perTurn {
		var turn []plimsoll.Event
		for i := range ends {
			turn = append(turn, ends[i][at:min(at+2*perTurn, len(ends[i]))]...)
			if len(turn) >= 8*perTurn || i == len(ends)-1 {
				for j := range turn {
					turn[j].Time = l.now
				}
				turns, turn, l.now = append(turns, turn), nil, l.now+7_123_456
			}
		}
	}
	return turns
}

func count(turns [][]plimsoll.Event) (n int) {
	for _, turn := range turns {
		n += len(turn)
	}
	return n
}

// BenchmarkEncoder measures packing alone; an operation is one event.
func BenchmarkEncoder(b *testing.B) {
	for _, perTurn := range []int{1, 25} {
		b.Run(fmt.Sprintf("ends-per-turn=%d", perTurn), func(b *testing.B) {
			turns := newWorkload(100).turns(20, perTurn)
			var e Encoder
			var dst []byte
			bytes, n := 0, 0
			b.ReportAllocs()
			b.ResetTimer()
			for n < b.N {
				for _, turn := range turns {
					for i := range turn {
						e.Append(&turn[i])
					}
					dst = e.Finish(dst[:0])
					bytes += len(dst)
					n += len(turn)
				}
			}
			b.ReportMetric(float64(bytes)/float64(n), "bytes/event")
		})
	}
}

// BenchmarkPublish measures packing, appending to a ring of a million, and a view after each turn.
// An operation is one event.
func BenchmarkPublish(b *testing.B) {
	turns := newWorkload(100).turns(20, 5)
	r := New(1_000_000)
	var e Encoder
	var dst []byte
	id, n := uint64(0), 0
	b.ReportAllocs()
	b.ResetTimer()
	for n < b.N {
		for _, turn := range turns {
			for i := range turn {
				e.Append(&turn[i])
			}
			dst = e.Finish(dst[:0])
			r.Append(id, uint64(len(turn)), dst)
			id += uint64(len(turn))
			_ = r.View() // a reader would use the view; taking it is part of publishing
			n += len(turn)
		}
	}
}

// BenchmarkBatch reads ten thousand events from the middle of a full ring.
func BenchmarkBatch(b *testing.B) {
	r := fill(100_000, 100, 20, 5)
	low, _, _ := r.View().Range()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := r.View().Batch(
			low+40_000, 10_000, func(uint64, *plimsoll.Event) bool { n++; return true },
		); err != nil || n != 10_000 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/event")
}

func fill(capacity, tasks, jobs, perTurn int) *Ring {
	l, r := newWorkload(tasks), New(capacity)
	var e Encoder
	var dst []byte
	for id := uint64(0); id < uint64(capacity)*5/4; {
		for _, turn := range l.turns(jobs, perTurn) {
			for i := range turn {
				e.Append(&turn[i])
			}
			dst = e.Finish(dst[:0])
			r.Append(id, uint64(len(turn)), dst)
			id += uint64(len(turn))
		}
	}
	return r
}

// BenchmarkHeld fills a ring, and reports the live heap that it takes and the duration of a garbage
// collection. In the rows with one end a turn each task ends in a turn of its own, which is the
// worst case for the packing. The form "pointers" is the first one of the design's table: a slice
// with a pointer for each event.
func BenchmarkHeld(b *testing.B) {
	const million = 1_000_000
	for _, size := range []int{1, 3, 6, 9} {
		for _, tasks := range []int{100, 30, 1} {
			b.Run(fmt.Sprintf("events=%dM/tasks=%d", size, tasks), func(b *testing.B) {
				held(b, size*million, func() any { return fill(size*million, tasks, 1, 1) })
			})
		}
	}
	for _, perTurn := range []int{5, 25} {
		b.Run(fmt.Sprintf("events=9M/tasks=100/ends-per-turn=%d", perTurn), func(b *testing.B) {
			held(b, 9*million, func() any { return fill(9*million, 100, 20, perTurn) })
		})
	}
	b.Run("pointers/events=3M/tasks=100", func(b *testing.B) {
		held(b, 3*million, func() any { return pointers(3*million, 100) })
	})
}

// held reports the memory of the value that hold returns, and the median duration of collections
// beside it.
func held(b *testing.B, events int, hold func() any) {
	b.Helper()
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		v := hold()
		runtime.GC()
		var took []time.Duration
		for range 9 {
			start := time.Now()
			runtime.GC()
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/GC")
		runtime.ReadMemStats(&after)
		bytes := float64(after.HeapAlloc) - float64(before.HeapAlloc)
		b.ReportMetric(bytes/float64(events), "bytes/event")
		b.ReportMetric(bytes/(1<<20), "MiB")
		runtime.KeepAlive(v)
	}
}

// pointers keeps events as the first form of the design's table does. The map of resources is one
// for all, which the design does not have: its records take more.
func pointers(events, tasks int) []*plimsoll.Event {
	kept := make([]*plimsoll.Event, 0, events)
	for l := newWorkload(tasks); ; {
		for _, turn := range l.turns(1, 1) {
			for i := range turn {
				if len(kept) == events {
					return kept
				}
				e := turn[i]
				kept = append(kept, &e)
			}
		}
	}
}
