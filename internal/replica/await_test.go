package replica

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A proof is as old as the question for it: an answer that took long is an old proof.
func TestTheAgeCountsFromTheQuestionForTheLastProof(t *testing.T) {
	began := time.Now()
	f := freshness{began: began}
	if _, ok := f.age(began.Add(time.Hour)); ok {
		t.Error("there is an age before the first proof")
	}
	f.prove(began.Add(2 * time.Second))
	f.prove(began.Add(time.Second)) // an older one that came late
	if age, ok := f.age(began.Add(5 * time.Second)); !ok || age != 3*time.Second {
		t.Errorf("the age is %s", age)
	}
	if age, _ := f.age(began); age != 0 {
		t.Errorf("before the proof the age is %s", age)
	}
}

func TestRecentDoesNotWaitAndKeepsItsProofYoung(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	leader.publish(put("a", "1"))
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address})
	if _, _, err := f.Recent(); err != nil && plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("before the first copy: %v", err)
	}
	ctx := testContext(t)
	mustReady(ctx, t, f)
	mustBarrier(ctx, t, f)
	f.fresh.proved.Store(1) // as if nobody had read for long
	f.fresh.began = f.fresh.began.Add(-time.Hour)
	s, age, err := f.Recent()
	if err != nil || s.Len(wire.KindJobStatus) != 1 || age < time.Hour {
		t.Fatalf("an old copy: %v, %s old (%v)", s, age, err)
	}
	for age >= time.Hour { // Recent has asked for a proof
		if ctx.Err() != nil {
			t.Fatal("no proof came")
		}
		if _, age, err = f.Recent(); err != nil {
			t.Fatal(err)
		}
	}
	leader.stop()
	if s, _, err := f.Recent(); err != nil || s.Len(wire.KindJobStatus) != 1 {
		t.Errorf("without a leader: %v", err)
	}
}

// A reader that names a revision sees it, whichever gateway it comes through, without a round trip.
func TestAtLeastWaitsForTheRevision(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	ctx := testContext(t)
	f, _ := startFollower(t, FollowerConfig{Leader: leader.address})
	mustReady(ctx, t, f)
	first := f.Latest().Version()
	var group sync.WaitGroup
	for i := range 50 {
		version := plimsoll.Version{Epoch: first.Epoch, Revision: first.Revision + uint64(i)}
		group.Go(func() {
			s, _, err := f.AtLeast(ctx, version)
			if err != nil || !s.Version().Holds(version) {
				t.Errorf("of %s: %v", version, err)
			}
		})
	}
	for i := range 50 {
		leader.publish(put("a", fmt.Sprint(i)))
	}
	group.Wait()
	if waiting := f.arrivals.waiting.Load(); waiting != 0 {
		t.Errorf("%d readers are still counted", waiting)
	}
	if _, _, err := f.AtLeast(ctx, plimsoll.Version{Revision: 1 << 60}); err != nil {
		t.Errorf("of an earlier epoch: %v", err)
	}
	ended, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	for _, never := range []plimsoll.Version{
		{Epoch: first.Epoch, Revision: 1 << 60}, {Epoch: first.Epoch + 1},
	} {
		if _, _, err := f.AtLeast(ended, never); plimsoll.CodeOf(err) != plimsoll.CodeDeadline {
			t.Errorf("of %s: %v", never, err)
		}
	}
}

// A snapshot proves nothing: it may be one that another gateway asked for earlier. Only the
// acknowledgement of a round that this gateway began gives its copy an age.
func TestASnapshotIsNoProofOfItsAge(t *testing.T) {
	f, err := NewFollower(FollowerConfig{Gateway: "g", Leader: "unix:/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	tables := NewTables()
	mustApply(tables, &wire.Batch{Epoch: 1, Revision: 7})
	history := NewHistory(0)
	history.Reset(1, 7)
	f.mirror.latest = tables.Snapshot()
	f.publish(&effect{connected: true, live: true, snapshot: f.mirror.latest, history: history.View()})
	if _, _, err := f.Recent(); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("before a proof: %v", err)
	}
	f.fresh.began = time.Now().Add(-time.Hour)
	f.fresh.prove(time.Now().Add(-time.Second))
	if s, age, err := f.Recent(); err != nil || s.Revision() != 7 || age < time.Second {
		t.Errorf("after a proof of a second ago: %v, %s", err, age)
	}
}
