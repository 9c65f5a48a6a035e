package historytest

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// start is when the worlds of the suite begin, in Unix nanoseconds: shortly before a full hour.
const start = int64(1_700_000_000_000_000_000) / 3600e9 * 3600e9

// world makes batches of a small cluster, in which ids are used again and clocks step back.
type world struct {
	rng      *rand.Rand
	now      int64
	instance int
	next     uint64
	lives    int64
	live     map[string]*history.Job // by id
	since    int                     // batches without a fold
	encoder  ring.Encoder
}

func newWorld(rng *rand.Rand) *world {
	return &world{rng: rng, now: start - 10*60e9, live: map[string]*history.Job{}}
}

var (
	someOwners = []string{"ann", "bob", "cy", ""}
	someQueues = []string{"root", "root.a", "root.a.b", "root.ab", "root.a.b.c", "root.z"}
	someNodes  = []string{"n1", "n2", "node-three"}
)

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func (w *world) text() string { return fmt.Sprintf("instance-%d", w.instance) }

// batch returns the next batch.
func (w *world) batch() *history.Batch {
	b := &history.Batch{}
	if w.next > 0 && w.rng.IntN(25) == 0 {
		w.gap(b)
	}
	b.Instance, b.First, b.Count = w.text(), w.next, uint64(1+w.rng.IntN(40))
	if w.rng.IntN(20) == 0 {
		b.Count = 300
	}
	objects, jobs := map[history.Object]bool{}, map[int64]history.Job{}
	for i := range b.Count {
		ev := w.event(jobs)
		if i == 0 {
			b.From = ev.Time
		}
		b.To = ev.Time
		history.Objects(&ev, func(o history.Object) {
			if j := w.live[o.ID]; o.Kind == history.KindJob && j != nil {
				o.Life = j.Life
			}
			objects[o] = true
		})
		w.encoder.Append(&ev)
	}
	b.Data = w.encoder.Finish(nil)
	b.Objects = slices.Collect(maps.Keys(objects)) // in any order
	for _, life := range slices.Sorted(maps.Keys(jobs)) {
		b.Jobs = append(b.Jobs, jobs[life])
	}
	b.Rollups = w.rollups()
	w.next += b.Count
	w.since++
	if b.Gap != nil || w.rng.IntN(6) == 0 {
		b.Fold = fmt.Appendf(nil, "the state behind %s %d", w.text(), w.next)
		if w.rng.IntN(4) == 0 {
			b.Fold = append(b.Fold, make([]byte, 5000)...)
		}
		w.since = 0
	}
	return b
}

// gap loses some events, or all that follow in the instance.
func (w *world) gap(b *history.Batch) {
	b.Gap = &history.Gap{Instance: w.text(), From: w.now, Reason: "A test lost them."}
	w.now += w.rng.Int64N(600e9)
	b.Gap.To = w.now
	if w.rng.IntN(2) == 0 {
		w.instance++
		w.next = w.rng.Uint64N(3) * 100
		return
	}
	b.Gap.First = w.next
	w.next += 1 + w.rng.Uint64N(1000)
	b.Gap.Next = w.next
}

// event makes an event, and notes in jobs which lives change with it.
func (w *world) event(jobs map[int64]history.Job) plimsoll.Event {
	switch w.rng.IntN(30) {
	case 0:
		w.now -= w.rng.Int64N(90e9)
	case 1:
		w.now += w.rng.Int64N(1200e9)
	default:
		w.now += w.rng.Int64N(2e9)
	}
	ev := plimsoll.Event{Time: w.now}
	id := fmt.Sprintf("job.%d", w.rng.IntN(9))
	j := w.live[id]
	task := plimsoll.TaskID(id, "main", w.rng.Int32N(3))
	switch w.rng.IntN(8) {
	case 0:
		ev.Type, ev.Change, ev.Object = plimsoll.EventApp, plimsoll.ChangeAdd, id
		j = w.begin(id)
		jobs[j.Life] = *j
	case 1:
		ev.Type, ev.Change, ev.Object, ev.Detail = plimsoll.EventApp, plimsoll.ChangeSet, id, plimsoll.AppCompleted
		if j != nil {
			j.State, j.Ended = plimsoll.AppCompleted, max(w.now, j.Submitted)
			jobs[j.Life] = *j
		}
	case 2:
		ev.Type, ev.Change, ev.Object, ev.Reference = plimsoll.EventRequest, plimsoll.ChangeAdd, task, id
	case 3:
		ev.Type, ev.Change, ev.Object = plimsoll.EventNode, plimsoll.ChangeSet, pick(w.rng, someNodes)
		ev.Message = "It is told."
	case 4:
		ev.Type, ev.Change, ev.Object = plimsoll.EventNode, plimsoll.ChangeAdd, pick(w.rng, someNodes)
		ev.Reference = task
	case 5:
		ev.Type, ev.Change, ev.Object = plimsoll.EventQueue, plimsoll.ChangeAdd, pick(w.rng, someQueues)
		ev.Reference = id
	default:
		ev.Type, ev.Change, ev.Object, ev.Reference = plimsoll.EventApp, plimsoll.ChangeRemove, id, task
		ev.Detail, ev.Resources = plimsoll.AppRequest, plimsoll.Resources{plimsoll.CPU: 100 + w.rng.Int64N(3)}
	}
	return ev
}

// begin begins a life.
func (w *world) begin(id string) *history.Job {
	w.lives++
	j := &history.Job{
		Life: w.lives, ID: id, Owner: pick(w.rng, someOwners), Queue: pick(w.rng, someQueues), Submitted: w.now,
		State: plimsoll.AppNew,
	}
	if w.rng.IntN(4) > 0 {
		j.UID = plimsoll.MakeUID(w.now, uint64(w.lives))
		j.Labels = map[string]string{}
		for range w.rng.IntN(3) {
			j.Labels[pick(w.rng, []string{"app", "zone"})] = fmt.Sprint(w.rng.IntN(3))
		}
	}
	w.live[id] = j
	return j
}

// rollups returns use of some jobs in the present hour.
func (w *world) rollups() (rollups []history.Rollup) {
	for _, id := range slices.Sorted(maps.Keys(w.live)) {
		j := w.live[id]
		hour := max(w.now, j.Submitted) / 3600e9 * 3600
		if j.Ended > 0 {
			hour = j.Ended / 3600e9 * 3600
		}
		for range w.rng.IntN(3) {
			s := history.Sums{Used: map[string]history.Amount{}}
			s.Used[plimsoll.CPU] = history.AmountOf(w.rng.Int64N(4), w.rng.Int64N(5)) // many are equal
			if w.rng.IntN(2) == 0 {
				s.Used[plimsoll.Memory] = history.AmountOf(w.rng.Int64N(math.MaxInt64), w.rng.Int64N(math.MaxInt64))
			}
			if w.rng.IntN(2) == 0 {
				s.Waits.Note(w.rng.Int64N(1e12))
			}
			s.Started, s.Ended, s.Failed = w.rng.Uint64N(3), w.rng.Uint64N(3), w.rng.Uint64N(2)
			rollups = append(rollups, history.Rollup{Hour: hour, Sums: s, Group: history.Group{
				Life: j.Life, Owner: j.Owner, Queue: j.Queue, Labels: history.EncodeLabels(j.Labels),
			}})
		}
	}
	return rollups
}

// randomTimeline returns a question about a timeline.
func (w *world) randomTimeline() (q history.TimelineQuery) {
	switch w.rng.IntN(6) {
	case 0:
	case 1:
		q.Object = history.Object{Kind: history.KindNode, ID: pick(w.rng, someNodes)}
	case 2:
		q.Object = history.Object{Kind: history.KindQueue, ID: pick(w.rng, someQueues)}
	default:
		q.Object = history.Object{Kind: history.KindJob, ID: fmt.Sprintf("job.%d", w.rng.IntN(10))}
		if w.rng.IntN(2) == 0 {
			q.Object.Life = w.rng.Int64N(w.lives + 2)
		}
		if j := w.live[q.Object.ID]; j != nil && w.rng.IntN(4) == 0 {
			q.Object.Life = j.Life
		}
		if w.rng.IntN(3) == 0 {
			q.Task = plimsoll.TaskID(q.Object.ID, "main", w.rng.Int32N(4))
		}
	}
	q.From, q.Until = w.times()
	if w.rng.IntN(2) == 0 {
		q.Limit = 1 + w.rng.IntN(500)
	}
	return q
}

func (w *world) time() int64 { return start - 15*60e9 + w.rng.Int64N(w.now-start+20*60e9) }

func (w *world) times() (from, until int64) {
	if w.rng.IntN(3) == 0 {
		from = w.time()
	}
	if w.rng.IntN(3) == 0 {
		until = w.time()
	}
	return from, until
}

func (w *world) filters() (owner, queue string, labels map[string]string) {
	if w.rng.IntN(4) == 0 {
		owner = pick(w.rng, someOwners)
	}
	if w.rng.IntN(3) == 0 {
		queue = pick(w.rng, someQueues)
	}
	if w.rng.IntN(4) == 0 {
		labels = map[string]string{pick(w.rng, []string{"app", "zone"}): fmt.Sprint(w.rng.IntN(3))}
	}
	return owner, queue, labels
}

func (w *world) randomJobs() (q history.JobQuery) {
	q.Owner, q.Queue, q.Labels = w.filters()
	if w.rng.IntN(4) == 0 {
		q.ID = fmt.Sprintf("job.%d", w.rng.IntN(10))
	}
	q.From, q.Until = w.times()
	q.Limit = w.rng.IntN(20)
	return q
}

func (w *world) randomUsage() (q history.UsageQuery) {
	q.Owner, q.Queue, q.Labels = w.filters()
	if w.rng.IntN(4) == 0 {
		q.Job = fmt.Sprintf("job.%d", w.rng.IntN(10))
	}
	q.From, q.Until = w.times()
	q.From, q.Until = q.From/1e9, q.Until/1e9
	all := []history.Dimension{
		history.ByOwner, history.ByQueue, history.ByJob, history.ByHour, history.ByDay, history.LabelPrefix + "app",
		history.LabelPrefix + "zone",
	}
	for range w.rng.IntN(4) {
		if by := pick(w.rng, all); !slices.Contains(q.By, by) {
			q.By = append(q.By, by)
		}
	}
	q.Limit = w.rng.IntN(8)
	return q
}
