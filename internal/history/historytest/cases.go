package historytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// batchOf packs events from an id on.
func batchOf(first uint64, events ...plimsoll.Event) *history.Batch {
	var e ring.Encoder
	for i := range events {
		e.Append(&events[i])
	}
	b := &history.Batch{
		Instance: "one", First: first, Count: uint64(len(events)), From: events[0].Time, To: events[len(events)-1].Time,
	}
	b.Data = e.Finish(nil)
	return b
}

// jobEvent is an event of a job, seconds behind the start; it begins a life with ChangeAdd.
func jobEvent(id string, change plimsoll.ChangeType, seconds int64) plimsoll.Event {
	return plimsoll.Event{Type: plimsoll.EventApp, Change: change, Object: id, Time: start + seconds*1e9}
}

// usageOf returns the usage of a life in an hour behind the start.
func usageOf(life, hour int64) history.Rollup {
	return history.Rollup{
		Hour: start/1e9 + hour*3600, Group: history.Group{Life: life, Owner: "ann"},
		Sums: history.Sums{Used: map[string]history.Amount{plimsoll.CPU: history.AmountOf(100+life, 10)}, Ended: 1},
	}
}

// withFold gives a batch a state behind it.
func withFold(b *history.Batch) *history.Batch {
	b.Fold = fmt.Appendf(nil, "behind %s %d", b.Instance, b.First+b.Count)
	return b
}

var writeCases = []testCase{
	{"an empty history has no position, and knows nothing", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		o.same(t)
		_, _, err := o.r.At(t.Context(), start)
		refused(t, "the state at a time", plimsoll.CodeNotFound, err)
		_, err = o.r.Timeline(t.Context(), history.TimelineQuery{
			Object: history.Object{Kind: history.KindJob, ID: "a"},
		})
		refused(t, "the timeline of an unknown job", plimsoll.CodeNotFound, err)
		rows, more, err := o.r.Usage(t.Context(), history.UsageQuery{By: []history.Dimension{history.ByOwner}})
		if len(rows) > 0 || more || err != nil {
			t.Fatalf("the usage is %v, %v, %v", rows, more, err)
		}
	}},
	{"a history keeps the name that it got when it was made", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		name, err := o.w.Name(t.Context())
		if err != nil || plimsoll.ValidateID("name", name) != nil {
			t.Fatalf("the name is %q, %v", name, err)
		}
		o.write(t, batchOf(0, jobEvent("a", plimsoll.ChangeAdd, 1)))
		if err := h.Crash(); err != nil {
			t.Fatalf("crash: %v", err)
		}
		o.openAgain(t)
		if again, err := o.w.Name(t.Context()); err != nil || again != name {
			t.Fatalf("the name was %q, and is %q, %v", name, again, err)
		}
	}},
	{"a batch that was acknowledged survives a crash", func(t tester, h Harness, seed uint64) {
		o, w := open(t, h), newWorld(rand.New(rand.NewPCG(seed, 1)))
		for i := range int64(5) {
			b := w.batch()
			b.Rollups = append(b.Rollups, usageOf(1, i))
			o.write(t, b)
			if err := h.Crash(); err != nil {
				t.Fatalf("crash: %v", err)
			}
			o.openAgain(t)
			o.same(t)
			o.sameUsage(t, history.UsageQuery{By: []history.Dimension{history.ByJob, history.ByHour}})
		}
	}},
	{"a batch that is written again changes nothing", func(t tester, h Harness, seed uint64) {
		o, w := open(t, h), newWorld(rand.New(rand.NewPCG(seed, 2)))
		for range 10 {
			b := w.batch()
			for range 3 {
				o.write(t, b)
			}
			o.same(t)
			o.sameUsage(t, history.UsageQuery{By: []history.Dimension{history.ByJob, history.ByHour}})
		}
	}},
	{"a batch at another place is refused, and leaves nothing", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		other := batchOf(0, jobEvent("a", plimsoll.ChangeAdd, 3))
		other.Instance = "two"
		first := batchOf(0, jobEvent("a", plimsoll.ChangeAdd, 1), jobEvent("a", plimsoll.ChangeSet, 2))
		refused(t, "a later batch", plimsoll.CodeInvalid, o.w.Write(t.Context(), batchOf(5, jobEvent("a", 1, 1))))
		o.write(t, first)
		for _, b := range []*history.Batch{
			batchOf(1, jobEvent("a", 1, 3), jobEvent("a", 1, 3)), batchOf(3, jobEvent("a", 1, 3)), other,
		} {
			refused(t, "another place", plimsoll.CodeInvalid, o.w.Write(t.Context(), b))
		}
		spoiled := batchOf(2, jobEvent("a", 1, 3))
		spoiled.Count++
		refused(t, "a wrong count", plimsoll.CodeInvalid, o.w.Write(t.Context(), spoiled))
		o.same(t)
	}},
	{"a gap is told, and its batch has a fold; a new instance is one too", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		o.write(t, withFold(batchOf(0, jobEvent("a", plimsoll.ChangeAdd, 1))))
		behind := batchOf(10, jobEvent("a", plimsoll.ChangeSet, 60))
		behind.Gap = &history.Gap{
			Instance: "one", First: 1, Next: 10, From: start + 1e9, To: start + 60e9, Reason: "A test.",
		}
		refused(t, "a gap without a fold", plimsoll.CodeInvalid, o.w.Write(t.Context(), behind))
		o.write(t, withFold(behind))
		o.same(t)
		next := withFold(batchOf(4, jobEvent("a", plimsoll.ChangeSet, 90)))
		next.Instance = "two"
		next.Gap = &history.Gap{Instance: "one", From: start + 60e9, To: start + 90e9, Reason: "Another."}
		o.write(t, next)
		o.same(t)
		for seconds := range int64(100) {
			o.sameAt(t, start+seconds*1e9)
		}
		_, _, err := o.r.At(t.Context(), start+30e9)
		refused(t, "the state in a gap", plimsoll.CodeNotFound, err)
	}},
	{"more gaps than are told are joined, the oldest two first", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		for i := range history.MaxGaps + 3 {
			at := int64(i + 1)
			b := withFold(batchOf(uint64(2*i+1), jobEvent("a", plimsoll.ChangeSet, at)))
			b.Gap = &history.Gap{Instance: "one", First: uint64(2 * i), Next: uint64(2*i + 1), From: at - 1, To: at}
			o.write(t, b)
		}
		o.same(t)
		status, err := o.r.Status(t.Context())
		if err != nil || len(status.Gaps) != history.MaxGaps || status.Gaps[0].Reason != history.JoinedReason ||
			status.Gaps[0].From != 0 || status.Gaps[0].To != 4 {
			t.Fatalf("there are %d gaps, the first is %+v, %v", len(status.Gaps), status.Gaps[0], err)
		}
	}},
	{"replay ends when its caller wants", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		for i := range uint64(3) {
			o.write(t, batchOf(i, jobEvent("a", plimsoll.ChangeSet, int64(i))))
		}
		enough, calls := errors.New("enough"), 0
		_, _, replay, err := o.w.Resume(t.Context())
		if err != nil {
			t.Fatalf("resume: %v", err)
		}
		err = replay(func(history.Events) error { calls++; return enough })
		if !errors.Is(err, enough) || calls != 1 {
			t.Fatalf("replay called %d times, %v", calls, err)
		}
	}},
	{"trimming takes events and usage at their own age, and nothing younger", trimAtTheAge},
	{"trimming by age leaves what is younger, what Resume needs, and the usage", trimByAge},
	{"trimming by bytes takes the oldest first", trimByBytes},
}

func trim(t tester, o *historyOf, keep history.Retention, now int64) {
	t.Helper()
	for more, count := true, 0; more; count++ {
		var err error
		if more, err = o.w.Trim(t.Context(), keep, now); err != nil || count > 100_000 {
			t.Fatalf("trim, %d times: %v", count, err)
		}
	}
	if _, err := o.model.Trim(t.Context(), keep, now); err != nil {
		t.Fatalf("the model: %v", err)
	}
}

// trimAtTheAge trims a history of ten hours, each with a batch, a fold, and a job that ends.
func trimAtTheAge(t tester, h Harness, _ uint64) {
	const age, usage = 3, 6 // hours
	o := open(t, h)
	for hour := range int64(10) {
		b := withFold(batchOf(uint64(hour), jobEvent("a", plimsoll.ChangeAdd, hour*3600+1)))
		b.Rollups = []history.Rollup{usageOf(hour+1, hour)}
		b.Jobs = []history.Job{{Life: hour + 1, ID: "a", Submitted: b.From, Ended: b.From}}
		o.write(t, b)
	}
	now := int64(10 * 3600)
	trim(t, o, history.Retention{Age: age * time.Hour, Usage: usage * time.Hour}, start+now*1e9)
	o.same(t)
	left, err := o.timeline(t, o.r, history.TimelineQuery{})
	if err != nil || len(left) != age {
		t.Fatalf("%d events are left, %v", len(left), err)
	}
	byHour := history.UsageQuery{By: []history.Dimension{history.ByHour}}
	rows, _, err := o.r.Usage(t.Context(), byHour)
	if err != nil || len(rows) != usage {
		t.Fatalf("the usage of %d hours is left, %v", len(rows), err)
	}
	o.sameUsage(t, byHour)
	o.sameJobs(t, history.JobQuery{})
}

func trimByAge(t tester, h Harness, seed uint64) {
	w := newWorld(rand.New(rand.NewPCG(seed, 3)))
	o := open(t, h)
	for range testrun.Count(4, 25, 300) {
		for range 5 {
			o.write(t, w.batch())
		}
		keep := history.Retention{Age: time.Hour}
		if w.rng.IntN(2) == 0 {
			keep.Usage = 4 * time.Hour
		}
		trim(t, o, keep, w.now)
		o.same(t)
		ask(t, o, w, 5)
	}
}

func trimByBytes(t tester, h Harness, seed uint64) {
	w := newWorld(rand.New(rand.NewPCG(seed, 4)))
	o := open(t, h)
	for range 60 {
		o.write(t, w.batch())
	}
	before, err := o.timeline(t, o.r, history.TimelineQuery{})
	if err != nil {
		t.Fatalf("timeline: %v", err)
	}
	full, err := o.r.Status(t.Context())
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	for _, part := range []int64{9, 7, 3, 0} {
		keep := history.Retention{Bytes: max(full.Bytes*part/10, 1)}
		for more := true; more; {
			if more, err = o.w.Trim(t.Context(), keep, w.now); err != nil {
				t.Fatalf("trim: %v", err)
			}
		}
		after, err := o.timeline(t, o.r, history.TimelineQuery{})
		if err != nil || len(after) == 0 || len(after) > len(before) {
			t.Fatalf("%d events are left of %d, %v", len(after), len(before), err)
		}
		differ(t, "what is left", after, before[len(before)-len(after):])
		o.sameResume(t)
		o.sameUsage(t, history.UsageQuery{By: []history.Dimension{history.ByOwner}})
		status, err := o.r.Status(t.Context())
		if err != nil || status.Events != uint64(len(after)) || status.Oldest != after[0].Event.Time ||
			status.Since != full.Since {
			t.Fatalf("the status is %+v with %d events, %v", status, len(after), err)
		}
	}
}

// twoLives is a history in which one batch has events of two lives of an id, and one before them.
func twoLives(t tester, h Harness) *historyOf {
	o := open(t, h)
	for i, c := range []struct {
		lives  []int64
		events []plimsoll.Event
	}{
		{[]int64{0}, []plimsoll.Event{jobEvent("a", plimsoll.ChangeRemove, 0)}},
		{[]int64{1}, []plimsoll.Event{jobEvent("a", plimsoll.ChangeAdd, 1)}},
		{
			[]int64{2, 3, 1}, []plimsoll.Event{
				jobEvent("a", plimsoll.ChangeSet, 2), jobEvent("a", plimsoll.ChangeAdd, 2),
				jobEvent("b", plimsoll.ChangeSet, 2), jobEvent("a", plimsoll.ChangeSet, 2),
				jobEvent("a", plimsoll.ChangeAdd, 3),
			},
		},
		{[]int64{3}, []plimsoll.Event{jobEvent("a", plimsoll.ChangeSet, 4)}},
	} {
		at, err := o.w.Position(t.Context())
		if err != nil {
			t.Fatalf("position: %v", err)
		}
		b := batchOf(at.Next, c.events...)
		for _, life := range c.lives {
			b.Objects = append(b.Objects, history.Object{Kind: history.KindJob, ID: "a", Life: life})
			if life > 0 {
				b.Jobs = append(b.Jobs, history.Job{Life: life, ID: "a", Submitted: start + life, Owner: fmt.Sprint(i)})
			}
		}
		o.write(t, b)
	}
	return o
}

var readCases = []testCase{
	{"the timelines of two lives of an id in one batch are told apart", func(t tester, h Harness, _ uint64) {
		o := twoLives(t, h)
		for life, want := range [][]uint64{{0, 1, 2, 3, 5, 6, 7}, {1, 2}, {3, 5}, {6, 7}} {
			got, err := o.timeline(t, o.r, history.TimelineQuery{
				Object: history.Object{Kind: history.KindJob, ID: "a", Life: int64(life)},
			})
			var ids []uint64
			for i := range got {
				ids = append(ids, got[i].ID)
			}
			if err != nil {
				t.Fatalf("life %d: %v", life, err)
			}
			differ(t, fmt.Sprintf("life %d", life), ids, want)
		}
		_, err := o.r.Timeline(t.Context(), history.TimelineQuery{
			Object: history.Object{Kind: history.KindJob, ID: "b", Life: 2},
		})
		refused(t, "a life of another id", plimsoll.CodeNotFound, err)
	}},
	{"the times of a timeline include its beginning, and not its end", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		for i := range int64(6) {
			o.write(t, batchOf(uint64(2*i), jobEvent("a", plimsoll.ChangeSet, i), jobEvent("a", plimsoll.ChangeSet, i)))
		}
		for from := range int64(7) {
			for until := from; until < 7; until++ {
				q := history.TimelineQuery{From: start + from*1e9, Until: start + until*1e9}
				got, err := o.timeline(t, o.r, q)
				if err != nil || int64(len(got)) != 2*(until-from) {
					t.Fatalf("from %d until %d there are %d events, %v", from, until, len(got), err)
				}
				o.sameTimeline(t, q)
			}
		}
	}},
	{"a page has at most MaxPageBytes, and the pages have all", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		events := make([]plimsoll.Event, 9000)
		for i := range events {
			events[i] = jobEvent("a", plimsoll.ChangeSet, int64(i))
			events[i].Message = strings.Repeat("x", plimsoll.MaxEventMessage)
		}
		o.write(t, batchOf(0, events...))
		got, err := o.timeline(t, o.r, history.TimelineQuery{})
		if err != nil || len(got) != len(events) {
			t.Fatalf("there are %d events, %v", len(got), err)
		}
	}},
	{"sums are exact beyond 64 bits", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		large := history.AmountOf(1<<60, 1<<62)
		for i := range uint64(3) {
			b := batchOf(i, jobEvent("a", plimsoll.ChangeSet, int64(i)))
			b.Rollups = []history.Rollup{{
				Hour: start / 1e9, Group: history.Group{Life: 1, Owner: "ann"},
				Sums: history.Sums{Used: map[string]history.Amount{"memory": large}},
			}}
			o.write(t, b)
		}
		rows, _, err := o.r.Usage(t.Context(), history.UsageQuery{By: []history.Dimension{history.ByOwner}})
		want := large.Plus(large).Plus(large)
		if err != nil || len(rows) != 1 || rows[0].Used["memory"] != want {
			t.Fatalf("the usage is %+v, %v, not %v", rows, err, want)
		}
	}},
	{"a question without sense names the field", func(t tester, h Harness, _ uint64) {
		o := open(t, h)
		for _, q := range []history.TimelineQuery{
			{Limit: -1},
			{Limit: history.MaxPage + 1},
			{Task: "a.b.1"},
			{Object: history.Object{Kind: 9, ID: "a"}},
			{Object: history.Object{Kind: history.KindNode, ID: "a", Life: 1}},
			{After: history.Cursor{Chunk: -1}},
		} {
			_, err := o.r.Timeline(t.Context(), q)
			refused(t, fmt.Sprintf("%+v", q), plimsoll.CodeInvalid, err)
		}
		for _, by := range [][]history.Dimension{{"color"}, {"label:"}, {history.ByOwner, history.ByOwner}} {
			_, _, err := o.r.Usage(t.Context(), history.UsageQuery{By: by})
			refused(t, fmt.Sprint(by), plimsoll.CodeInvalid, err)
		}
		_, err := o.r.Jobs(t.Context(), history.JobQuery{Limit: -1})
		refused(t, "a negative limit", plimsoll.CodeInvalid, err)
	}},
	{"jobs are found by time, in whatever order they come", func(t tester, h Harness, seed uint64) {
		o, rng := open(t, h), rand.New(rand.NewPCG(seed, 7))
		count := testrun.Count(25, 100, 1000)
		for i := range count {
			b := batchOf(uint64(i), jobEvent("a", plimsoll.ChangeSet, int64(i)))
			for range rng.IntN(5) {
				j := history.Job{Life: 1 + rng.Int64N(150), ID: "a", Submitted: start + rng.Int64N(1e12)}
				if i < count/2 { // in an order that is nearly that of the lives
					j.Submitted = start + j.Life*1e10 + rng.Int64N(5e10)
				}
				if rng.IntN(3) > 0 {
					j.Ended = j.Submitted + rng.Int64N(1e11)
				}
				b.Jobs = append(b.Jobs, j)
			}
			o.write(t, b)
			q := history.JobQuery{From: start + rng.Int64N(1e12), Limit: 1 + rng.IntN(100)}
			if rng.IntN(2) == 0 {
				q.Until = q.From + rng.Int64N(2e11)
			}
			o.sameJobs(t, q)
		}
	}},
	{"days are those of the zone", func(t tester, h Harness, _ uint64) {
		o, zone := open(t, h), time.FixedZone("far", 5*3600+1800)
		for i := range int64(48) {
			b := batchOf(uint64(i), jobEvent("a", plimsoll.ChangeSet, i*3600))
			b.Rollups = []history.Rollup{{
				Hour: start/1e9 + i*3600, Group: history.Group{Life: 1}, Sums: history.Sums{Ended: 1},
			}}
			o.write(t, b)
		}
		for _, by := range []history.Dimension{history.ByDay, history.ByHour} {
			o.sameUsage(t, history.UsageQuery{By: []history.Dimension{by}, Zone: zone})
			o.sameUsage(t, history.UsageQuery{By: []history.Dimension{by}})
		}
	}},
}

// randomCases compare a history with the model over random batches and questions.
var randomCases = []testCase{
	{"random questions are answered as by looking at everything", func(t tester, h Harness, seed uint64) {
		o, w := open(t, h), newWorld(rand.New(rand.NewPCG(seed, 5)))
		for range testrun.Count(6, 60, 300) {
			for range 1 + w.rng.IntN(4) {
				o.write(t, w.batch())
			}
			ask(t, o, w, 10)
		}
		o.same(t)
	}},
	{"random batches, repeats and crashes leave what the model has", func(t tester, h Harness, seed uint64) {
		o, w := open(t, h), newWorld(rand.New(rand.NewPCG(seed, 6)))
		var last *history.Batch
		for range testrun.Count(10, 80, 500) {
			switch {
			case w.rng.IntN(8) == 0:
				if err := h.Crash(); err != nil {
					t.Fatalf("crash: %v", err)
				}
				o.openAgain(t)
			case last != nil && w.rng.IntN(5) == 0:
				o.write(t, last)
			default:
				last = w.batch()
				o.write(t, last)
			}
			ask(t, o, w, 2)
		}
		o.same(t)
	}},
}

// ask asks random questions of each kind.
func ask(t tester, o *historyOf, w *world, count int) {
	t.Helper()
	for range count {
		o.sameTimeline(t, w.randomTimeline())
		o.sameJobs(t, w.randomJobs())
		o.sameUsage(t, w.randomUsage())
		o.sameAt(t, w.time())
	}
	o.sameResume(t)
}
