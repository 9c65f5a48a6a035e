package engine_test

import (
	"math/big"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	historyfold "github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// lateFold is a fold that begins with a snapshot, again and again. Its lists are of later instants
// than its first event, each of another one.
type lateFold struct {
	gap      bool              // it is a fold that has missed events
	fold     *historyfold.Fold // while stage is not followed: the one from before the gap
	stage    lateStage
	wait     int // turns until the next stage
	from     int // number of the first event that is applied
	at       int64
	snapshot *historyfold.Snapshot
	lives    map[int64]history.Job
	used     sums
	before   sums                   // what the other fold had counted then
	known    map[plimsoll.UID]int64 // lives from before the gap
	done     int
}

type lateStage int

const (
	lateIdle lateStage = iota
	lateMissing
	lateQueues
	lateNodes
	lateJobs
	lateTasks
	lateFollowed
)

// turn goes on with the fold after a turn of the engine that has made events.
func (l *lateFold) turn(k *told, events []plimsoll.Event, view *historyfold.View, tasks []historyfold.Task) {
	if l.stage == lateFollowed {
		l.apply(k, events)
		k.compare("the late fold", l.fold, view, tasks, true)
	}
	for l.wait--; l.wait < 0 && l.advance(k); {
		l.wait = k.rng.IntN(6)
	}
	if l.stage == lateFollowed && l.wait < 0 {
		l.finish(k)
		l.stage = lateIdle
	}
}

// advance goes to the next stage. more is true while the next one may follow at once.
func (l *lateFold) advance(k *told) (more bool) {
	s := k.w.engine.State()
	switch l.stage {
	case lateIdle:
		l.stage, l.fold = lateMissing, nil
		if l.gap {
			l.fold = decoded(k)
			l.known = map[plimsoll.UID]int64{}
			for _, j := range l.fold.View().Jobs {
				l.known[j.UID] = j.Life
			}
		}
	case lateMissing:
		l.stage, l.from, l.at, l.snapshot = lateQueues, k.first+len(k.events), k.fold.Time(), historyfold.NewSnapshot()
		l.before = sums{}
		for at, amount := range k.used {
			l.before.add(at, amount)
		}
	case lateQueues:
		l.stage = lateNodes
		s.Tree().Root.Walk(func(q *queue.Queue) {
			st := s.QueueStatus(q)
			l.snapshot.AddQueue(&st)
		})
	case lateNodes:
		l.stage = lateJobs
		for i := range 6 {
			if n := s.Node("n" + strconv.Itoa(i)); n != nil {
				l.snapshot.AddNode(&n.Node)
			}
		}
	case lateJobs:
		l.stage = lateTasks
		for _, id := range k.w.jobs {
			if j := s.Job(id); j != nil {
				l.snapshot.AddJob(&plimsoll.Job{Spec: *j.Spec, Status: s.JobStatus(j)})
			}
		}
	case lateTasks:
		l.begin(k, s)
		l.stage, l.wait = lateFollowed, 5+k.rng.IntN(20)
		return false
	}
	return l.stage != lateFollowed
}

func decoded(k *told) *historyfold.Fold {
	f, err := historyfold.Decode(k.fold.AppendState(nil))
	if err != nil {
		k.w.t.Fatal(err)
	}
	return f
}

// begin adds the tasks to the snapshot, and applies the events since.
func (l *lateFold) begin(k *told, s *state.State) {
	eachTask(k.w, func(_ *state.Job, r state.Ref) {
		record := s.TaskRecord(r)
		l.snapshot.AddTask(&record)
	})
	l.lives, l.used = map[int64]history.Job{}, sums{}
	if l.fold == nil {
		l.fold = historyfold.Begin(l.snapshot, l.at)
	} else {
		l.fold.Gap(l.snapshot, l.at)
	}
	for events := k.events[l.from-k.first:]; len(events) > 0; {
		n := 1 + k.rng.IntN(len(events))
		l.apply(k, events[:n])
		events = events[n:]
	}
	view, tasks := stateView(k.w)
	k.compare("the fold that begins", l.fold, view, tasks, true)
}

func (l *lateFold) apply(k *told, events []plimsoll.Event) {
	for len(events) > 0 {
		r := l.fold.Apply(events)
		for _, j := range r.Jobs {
			l.lives[j.Life] = j
		}
		addRollups(l.used, &r, l.lives)
		events = events[r.Taken:]
	}
}

// finish compares the usage that the fold has counted, in all, with that of the other fold. It does
// not know the owners of jobs that were gone when the lists were read.
func (l *lateFold) finish(k *told) {
	l.done++
	if l.gap {
		for _, j := range l.fold.View().Jobs {
			if life := l.known[j.UID]; life != 0 && life != j.Life {
				k.w.t.Fatalf("job %s had life %d before the gap, and has %d", j.ID, life, j.Life)
			}
		}
		return
	}
	want, got := sums{}, sums{}
	for at, amount := range k.used {
		at.uid = plimsoll.UID{}
		want.add(at, amount)
	}
	for at, amount := range l.before {
		at.uid = plimsoll.UID{}
		want.add(at, new(big.Int).Neg(amount))
	}
	for at, amount := range l.used {
		at.uid = plimsoll.UID{}
		got.add(at, amount)
	}
	if diff := differences(got, want); diff != "" {
		k.w.t.Fatalf("a fold that begins at %d counts another usage: %s", l.at, diff)
	}
}
