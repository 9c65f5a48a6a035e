package fold_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// anyEvent draws an event of few objects, which need not make sense.
func anyEvent(rng *rand.Rand, at int64) plimsoll.Event {
	job := pick(rng, "a", "b", "c.d")
	task := job + pick(rng, ".g.0", ".g.1", ".h.0", ".h.7", ".0", "", "..", ".g.01", ".g.9999999")
	e := plimsoll.Event{
		Type: plimsoll.EventType(rng.IntN(plimsoll.NumEventTypes + 1)), Change: plimsoll.ChangeType(rng.IntN(5)), Time: at,
		Object: job, Resources: pick(rng, nil, small, plimsoll.Resources{"gpu": -1}, plimsoll.Resources{}),
		Message: pick(rng, "", "succeeded", "failed", "ready: true", "draining: true", "x: false (y)"),
	}
	details := []plimsoll.ChangeDetail{
		plimsoll.DetailNone, plimsoll.AppAlloc, plimsoll.AppRequest, plimsoll.RequestCancel, plimsoll.AllocCancel,
		plimsoll.AppReject, plimsoll.AppRunning, plimsoll.AppCompleted,
	}
	switch e.Type {
	case plimsoll.EventApp:
		e.Reference = task
	case plimsoll.EventRequest:
		e.Object = task
	case plimsoll.EventNode:
		e.Object, e.Reference = pick(rng, "n", "m", ""), task
		details = []plimsoll.ChangeDetail{
			plimsoll.DetailNone, plimsoll.NodeAlloc, plimsoll.NodeAlloc, plimsoll.NodeReady, plimsoll.NodeSchedulable,
			plimsoll.NodeCapacity, plimsoll.NodeOccupied, plimsoll.NodeDecomission,
		}
	case plimsoll.EventQueue:
		e.Object, e.Reference = pick(rng, "root", "root.x", ""), pick(rng, job, "")
		details = []plimsoll.ChangeDetail{
			plimsoll.DetailNone, plimsoll.QueueApp, plimsoll.QueueApp, plimsoll.QueueMax, plimsoll.QueueGuaranteed,
			plimsoll.QueueType, plimsoll.QueueConfigured, plimsoll.QueueDynamic,
		}
	case plimsoll.EventUserGroup:
		e.Reference, e.Message = pick(rng, job, "root.x", ""), pick(rng, "", plimsoll.LimitText("root.x", 0))
		details = []plimsoll.ChangeDetail{
			plimsoll.UserLimit, plimsoll.GroupLimit, plimsoll.GroupLink, plimsoll.UserResource,
		}
	}
	e.Detail = pick(rng, details...)
	return e
}

func anyEvents(rng *rand.Rand, clock *int64, n int) (events []plimsoll.Event) {
	for range n {
		*clock += pick(rng, 0, 0, 1, second, 40*second, hour, -second)
		events = append(events, anyEvent(rng, *clock))
	}
	return events
}

// anySnapshot draws lists that need not make sense.
func anySnapshot(rng *rand.Rand, clock int64) *fold.Snapshot {
	s := fold.NewSnapshot()
	some := func() bool { return rng.IntN(2) == 0 }
	for _, path := range []string{"root", "root.x"} {
		if some() {
			s.AddQueue(&plimsoll.QueueStatus{Path: path, Leaf: some(), Draining: some(), Max: pick(rng, nil, small)})
		}
	}
	for _, id := range []string{"n", "m"} {
		if some() {
			s.AddNode(&plimsoll.Node{ID: id, Capacity: small, Ready: some(), Mode: plimsoll.NodeMode(rng.IntN(4))})
		}
	}
	near := func() int64 { return clock + (rng.Int64N(5)-2)*second }
	for _, id := range []string{"a", "b", "c.d", "a"} {
		if some() {
			s.AddJob(&plimsoll.Job{
				Spec: plimsoll.JobSpec{
					Groups: []plimsoll.GroupSpec{{Name: "g", Resources: small}}, Labels: map[string]string{"k": id},
				},
				Status: plimsoll.JobStatus{
					ID: id, State: plimsoll.JobState(rng.IntN(14)), Queue: "root.x", Submitted: near(),
					UID: pick(rng, plimsoll.UID{}, plimsoll.MakeUID(1, 1), plimsoll.MakeUID(1, 2)),
				},
			})
		}
		for range rng.IntN(6) {
			s.AddTask(&plimsoll.Task{
				Job: id, Group: pick(rng, "g", "h"), Index: rng.Int32N(3) - 1, State: plimsoll.TaskState(rng.IntN(8)),
				Node: pick(rng, "n", "m", "x"), Created: near(), Bound: near(), Attempt: rng.Int32N(2),
			})
		}
	}
	return s
}

// Events and lists may say anything: a fold that is encoded and decoded goes on as the other does,
// and takes no more memory.
func TestAnyFoldGoesOnWhenItIsDecoded(t *testing.T) {
	rng, clock := rand.New(rand.NewPCG(testrun.Seed(t), 1)), int64(0)
	f := fold.New()
	for i := range testrun.Count(500, 5_000, 50_000) {
		state := f.AppendState(nil)
		g, err := fold.Decode(state)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if again := g.AppendState(nil); !bytes.Equal(state, again) {
			t.Fatalf("step %d: it is encoded to other bytes:\n%q\n%q", i, state, again)
		}
		if got, was := g.Memory(), f.Memory(); got > was || got < was-100 { // of lists that are read off
			t.Fatalf("step %d: it takes %d bytes, and %d before", i, got, was)
		}
		if diff := cmp.Diff(f.View(), g.View()); diff != "" {
			t.Fatalf("step %d: it shows something else:\n%s", i, diff)
		}
		switch rng.IntN(50) {
		case 0:
			seed := rng.Uint64()
			f.Gap(anySnapshot(rand.New(rand.NewPCG(seed, 2)), clock), clock)
			g.Gap(anySnapshot(rand.New(rand.NewPCG(seed, 2)), clock), clock)
		case 1:
			f = fold.New()
			g = fold.New()
		}
		events := anyEvents(rng, &clock, 1+rng.IntN(8))
		if diff := cmp.Diff(f.Apply(events), g.Apply(events)); diff != "" {
			t.Fatalf("step %d: it makes something else of events:\n%s", i, diff)
		}
		if !bytes.Equal(f.AppendState(nil), g.AppendState(nil)) {
			t.Fatalf("step %d: it goes on to another state", i)
		}
		f = pick(rng, f, g)
	}
}

// The sums of usage are the same however events are divided into calls.
func TestUsageDoesNotDependOnTheCalls(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 3))
	for range testrun.Count(20, 200, 20_000) {
		clock := int64(0)
		events := anyEvents(rng, &clock, 100)
		events = append(events, plimsoll.Event{Time: clock + hour})
		whole, parts, split := newHistory(), newHistory(), fold.New()
		whole.apply(t, fold.New(), events...)
		for left := events; len(left) > 0; {
			n := 1 + rng.IntN(len(left))
			parts.apply(t, split, left[:n]...)
			left = left[n:]
		}
		if diff := cmp.Diff(byLife(whole), byLife(parts)); diff != "" {
			t.Fatal(diff)
		}
	}
}

// byLife adds up the sums of each life and hour. Queues of garbage may change within a life.
func byLife(h *history1) map[[2]int64]*history.Sums {
	sums := map[[2]int64]*history.Sums{}
	for key, row := range h.rows {
		at := [2]int64{key.group.Life, key.hour}
		if sums[at] == nil {
			sums[at] = &history.Sums{}
		}
		sums[at].Add(row)
	}
	return sums
}

// A state that is cut off or changed is refused. If its checksum is made to fit, it is refused, or
// it is the state of another fold.
func TestOtherBytesAreRefused(t *testing.T) {
	rng, clock := rand.New(rand.NewPCG(testrun.Seed(t), 4)), int64(0)
	f := fold.Begin(anySnapshot(rng, clock), clock)
	f.Apply(anyEvents(rng, &clock, 100))
	state := f.AppendState(nil)
	for n := range len(state) {
		if _, err := fold.Decode(state[:n]); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
			t.Fatalf("%d of %d bytes: %v", n, len(state), err)
		}
		changed := slices.Clone(state)
		changed[n] ^= byte(1 + rng.IntN(255))
		if _, err := fold.Decode(changed); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
			t.Fatalf("another byte %d: %v", n, err)
		}
		tryState(t, changed[:len(changed)-4])
	}
}

// tryState decodes a state without its checksum.
func tryState(t *testing.T, body []byte) {
	t.Helper()
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	state := binary.LittleEndian.AppendUint32(slices.Clone(body), sum)
	f, err := fold.Decode(state)
	if err != nil {
		if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
			t.Fatalf("the code is %v: %v", plimsoll.CodeOf(err), err)
		}
		return
	}
	if again := f.AppendState(nil); !bytes.Equal(state, again) {
		t.Fatalf("%x is decoded, and encoded as %x", state, again)
	}
	f.View()
	f.Apply(all(submitted(hour, "a"), requested(hour, "a.g.0"), bound(hour, "a.g.0", "n")))
}

func FuzzDecode(f *testing.F) {
	for seed := range uint64(10) {
		rng, clock := rand.New(rand.NewPCG(seed, 5)), int64(0)
		is := fold.Begin(anySnapshot(rng, clock), clock)
		is.Apply(anyEvents(rng, &clock, 30))
		state := is.AppendState(nil)
		f.Add(state[:len(state)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) { tryState(t, body) })
}

func ExampleFold() {
	f := fold.New()
	r := f.Apply(all(
		node(0, "n1"), submitted(second, "etl"), requested(second, "etl.map.0"), bound(3*second, "etl.map.0", "n1"),
		ended(63*second, "etl.map.0", "n1", plimsoll.ResultSucceeded),
	))
	used := r.Rollups[0].Sums
	fmt.Println(used.Used[plimsoll.CPU].Seconds()/1000, "CPU seconds after a wait of", used.Waits.Longest/second, "s")
	// Output: 30 CPU seconds after a wait of 2 s
}
