package fold_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// round returns the events of jobs from their submit to their removal, some of which are under way
// at each instant.
func round(at int64, jobs, tasks int) (events []plimsoll.Event) {
	for i := range jobs {
		id := fmt.Sprintf("job-%d-%d", at, i)
		events = append(events, of("alice", submitted(at, id))...)
		for k := range tasks {
			events = append(events, requested(at, plimsoll.TaskID(id, "g", int32(k)))...)
		}
		for k := range tasks {
			at += second / 100
			events = append(events, bound(at, plimsoll.TaskID(id, "g", int32(k)), fmt.Sprint("node", k%50))...)
		}
		for k := range tasks {
			at += second / 100
			events = append(events, ended(at, plimsoll.TaskID(id, "g", int32(k)), fmt.Sprint("node", k%50),
				plimsoll.ResultSucceeded)...)
		}
		events = append(events, removed(at, id)...)
	}
	return events
}

// large returns a fold of jobs with tasks on nodes.
func large(jobs, tasks int) *fold.Fold {
	f := fold.New()
	apply := func(events []plimsoll.Event) {
		for len(events) > 0 {
			events = events[f.Apply(events).Taken:]
		}
	}
	for i := range 1000 {
		apply(node(second, fmt.Sprint("node", i)))
	}
	for i := range jobs {
		id, at := fmt.Sprint("job", i), int64(i+1)*second/10
		events := of("alice", submitted(at, id))
		for k := range tasks {
			task := plimsoll.TaskID(id, "main", int32(k))
			at += 1_234_567
			events = append(events, requested(at, task)...)
			events = append(events, bound(at+3_456_789, task, fmt.Sprint("node", (i+k)%1000))...)
		}
		apply(events)
	}
	return f
}

// An operation is one event. The fold has 100,000 tasks beside those of the events.
func BenchmarkApply(b *testing.B) {
	for _, tasks := range []int{100, 30, 1} {
		b.Run(fmt.Sprint("tasks=", tasks), func(b *testing.B) {
			f := large(1000, 100)
			events := round(f.Time(), 20_000/(5+6*tasks)+1, tasks)
			b.ResetTimer()
			b.ReportAllocs()
			for left := b.N; left > 0; {
				for at := 0; at < len(events) && left > 0; {
					n := f.Apply(events[at:min(at+5000, len(events), at+left)]).Taken
					at, left = at+n, left-n
				}
				b.StopTimer()
				events = round(f.Time(), 20_000/(5+6*tasks)+1, tasks)
				b.StartTimer()
			}
		})
	}
}

func BenchmarkAppendState(b *testing.B) {
	for _, size := range [][2]int{{10, 10_000}, {1000, 100}, {100_000, 1}} {
		b.Run(fmt.Sprintf("jobs=%d/tasks=%d", size[0], size[1]), func(b *testing.B) {
			f := large(size[0], size[1])
			var state []byte
			for b.Loop() {
				state = f.AppendState(state[:0])
			}
			b.ReportMetric(float64(len(state)), "state-bytes")
			b.ReportMetric(float64(f.Memory()), "memory-bytes")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	state := large(1000, 100).AppendState(nil)
	for b.Loop() {
		if _, err := fold.Decode(state); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkView(b *testing.B) {
	f := large(1000, 100)
	for b.Loop() {
		f.View()
	}
}

// BenchmarkAt makes the cluster of an instant as the historian does: from a stored fold with
// 100,000 tasks, and the most events that a history puts between two folds. Reading them from the
// file is History/tasks=N/at.
func BenchmarkAt(b *testing.B) {
	const between, run = 200_000, 10_000
	for _, tasks := range []int{100, 1} {
		b.Run(fmt.Sprint("tasks=", tasks), func(b *testing.B) {
			f := large(100_000/tasks, tasks)
			state := f.AppendState(nil)
			events := round(f.Time(), between/(5+6*tasks)+1, tasks)[:between]
			var encoder ring.Encoder
			var runs [][]byte
			for i := range events {
				encoder.Append(&events[i])
				if encoder.Len() == run {
					runs = append(runs, encoder.Finish(nil))
				}
			}
			for b.Loop() {
				at, err := fold.Decode(state)
				if err != nil {
					b.Fatal(err)
				}
				for _, data := range runs {
					events := make([]plimsoll.Event, 0, run)
					for e, err := range ring.Decode(data) {
						if err != nil {
							b.Fatal(err)
						}
						events = append(events, e)
					}
					for len(events) > 0 {
						events = events[at.Apply(events).Taken:]
					}
				}
				at.View()
			}
		})
	}
}
