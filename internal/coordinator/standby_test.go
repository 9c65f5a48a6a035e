package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// warmTest is a leader under a random load, and a process that keeps a copy of it.
type warmTest struct {
	t       *testing.T
	stored  *shared
	l       *leader
	d       *load
	standby *Coordinator
	round   int
}

func newWarmTest(t *testing.T, clock *clock) *warmTest {
	w := &warmTest{t: t, stored: newShared()}
	cfg := Config{
		Now: clock.read, Seed: 1,
		State: state.Config{
			MaxEnded: 200, KeepEnded: 3600e9, LostAfter: 20e9, NodeGrace: 5e9,
			Events: map[string]string{"ringBufferCapacity": "2000"},
		},
	}
	w.l = lead(t, cfg, w.stored.member("leader"))
	w.d = &load{l: w.l, clock: clock}
	cfg.Listen, cfg.Peers = "unix:"+filepath.Join(t.TempDir(), "s"), w.l.address
	var err error
	if w.standby, err = New(cfg, w.stored.open("standby")); err != nil {
		t.Fatal(err)
	}
	return w
}

// load puts a random load on the leader, with every kind of record in it.
func (w *warmTest) load(seed uint64) {
	w.round++
	w.d.run(seed+uint64(w.round), 4, testrun.Count(60, 120, 2000))
	for i := range 5 {
		spec := job(fmt.Sprintf("t%d-%d", w.round, i), 2)
		spec.Token = "token-" + spec.ID
		w.d.do(submit(spec))
		again := *spec
		again.Groups = nil // refused; its outcome is stored too
		again.Token = "refused-" + spec.ID
		w.d.do(submit(&again))
	}
	w.d.do(reportHistorian(fmt.Sprintf("h%d", w.round%3), "", uint64(w.round)))
}

// follow lets the standby follow until its copy is complete.
func (w *warmTest) follow() {
	w.standby.copied.follow(w.t.Context(), "")
	if err := w.standby.copied.following().Ready(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// takeOver ends the leader and loads what is stored with a reader that returns what is to be used.
func (w *warmTest) takeOver(copied *replica.Tables) (warm, cold *loaded) {
	w.t.Helper()
	w.l.stop()
	m := w.stored.member("standby")
	epoch, err := m.Lead(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	from, ok := afterCopy(w.t.Context(), m, copied, epoch)
	if !ok {
		w.t.Fatal("the copy cannot be used")
	}
	if warm, err = w.standby.load(w.t.Context(), m.Limits(), from, epoch); err != nil {
		w.t.Fatalf("after the copy: %v", err)
	}
	if m.loads > 0 {
		w.t.Error("everything was loaded")
	}
	if cold, err = w.standby.load(w.t.Context(), m.Limits(), stored{read: m.Load}, epoch); err != nil {
		w.t.Fatalf("everything: %v", err)
	}
	return warm, cold
}

// sameLoaded compares what two loads have found, byte for byte.
func sameLoaded(t *testing.T, warm, cold *loaded) {
	t.Helper()
	a, b := cold.tables.Snapshot(), warm.tables.Snapshot()
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		sameRecords(t, "with a copy", a, b, kind)
	}
	if a.Revision() != b.Revision() || warm.revision != cold.revision || warm.time != cold.time ||
		warm.nextEvent != cold.nextEvent || warm.ids != cold.ids || warm.newIDs != cold.newIDs {
		t.Errorf("with a copy: %+v\nwithout: %+v", warm, cold)
	}
	if a, b := dump(t, cold.state), dump(t, warm.state); !bytes.Equal(a, b) {
		t.Errorf("the states differ:\n%s", firstDifference(a, b))
	}
	if err := warm.state.Check(); err != nil {
		t.Error(err)
	}
	// The store has events that the last leader's ring did not show any more. A copy has none of
	// these.
	low, all := events(t, a)
	from, got := events(t, b)
	if from < low || len(got) < 1000 || !slices.Equal(got, all[min(int(from-low), len(all)):]) {
		t.Errorf("%d events from %d on are shown with a copy, and %d from %d on without", len(got), from, len(all), low)
	}
}

// A process that takes over with a copy has the same state, byte for byte, as one that has loaded
// everything: whether its copy is complete, or behind by any number of changes.
func TestTakeoverWithACopyEqualsALoad(t *testing.T) {
	seed := testrun.Seed(t)
	for round := range testrun.Count(2, 2, 40) {
		t.Run(fmt.Sprint("seed ", seed, " round ", round), func(t *testing.T) {
			clock := newClock()
			w := newWarmTest(t, clock)
			w.load(seed + uint64(round)*100)
			w.follow()
			w.load(seed + uint64(round)*100) // the copy takes this as batches
			behind := round%2 == 1
			if !behind {
				clock.step.Store(0)
				w.l.settle()
				w.standby.copied.catchUp(t, w.l.Latest().Revision())
			}
			copied := w.standby.copied.take()
			if behind {
				w.load(seed + uint64(round)*100) // the copy has nothing of this
				clock.step.Store(0)
				w.l.settle()
			}
			revision := copied.Snapshot().Revision()
			warm, cold := w.takeOver(copied)
			sameLoaded(t, warm, cold)
			t.Logf("revision %d of %d was copied; %d tasks", revision, warm.revision,
				warm.tables.Snapshot().Len(wire.KindTask))
		})
	}
}

// A state of several parts is taken over with a copy. The ids and groups of its jobs are not in the
// order of their submits, and rejected jobs are between them.
func TestTakeoverOfManyTasksWithACopy(t *testing.T) {
	clock := newClock()
	w := newWarmTest(t, clock)
	for i, id := range []string{"b", "a-b", "a", "A", "a_b", "a.b", "a0"} {
		spec := job(id, 1500)
		second := spec.Groups[0]
		second.Name, second.Count = "Other", 200
		spec.Groups = append(spec.Groups, second)
		w.d.do(submit(spec))
		rejected := job(fmt.Sprint("a-", i), 1)
		rejected.Queue = "root.nowhere"
		w.d.do(submit(rejected))
	}
	w.follow()
	w.load(1)
	clock.step.Store(0)
	w.l.settle()
	w.standby.copied.catchUp(t, w.l.Latest().Revision())
	warm, cold := w.takeOver(w.standby.copied.take())
	a, b := cold.tables.Snapshot(), warm.tables.Snapshot()
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		sameRecords(t, "with a copy", a, b, kind)
	}
	if n := b.Len(wire.KindTask); n < 2*4096 {
		t.Errorf("there are only %d tasks", n)
	}
}

// A copy with a damaged record does not keep a process from leading: everything is loaded.
func TestADamagedCopyIsNotUsed(t *testing.T) {
	clock := newClock()
	w := newWarmTest(t, clock)
	w.load(1)
	w.follow()
	clock.step.Store(0)
	w.l.settle()
	w.standby.copied.catchUp(t, w.l.Latest().Revision())
	w.standby.copied.cancel()
	w.standby.copied.ended.Wait()
	tables := w.standby.copied.following().Tables()
	version, at := tables.Snapshot().Version(), tables.Snapshot().Time()
	damaged := wire.Mutation{Kind: wire.KindPolicy, Key: "damaged", Value: []byte{0xff}}
	batch := &wire.Batch{Epoch: version.Epoch, Revision: version.Revision, Time: at}
	batch.Mutations = []wire.Mutation{damaged}
	if err := tables.Apply(batch); err != nil {
		t.Fatal(err)
	}
	w.l.stop()
	var told error
	w.standby.cfg.Events.CopyUnused = func(err error) { told = err }
	m := w.stored.member("standby")
	term, err := w.standby.begin(t.Context(), m)
	if err != nil || m.loads != 1 || plimsoll.CodeOf(told) != plimsoll.CodeCorrupt {
		t.Fatalf("%v after %d loads; told: %v", err, m.loads, told)
	}
	if err := term.engine.State().Check(); err != nil {
		t.Error(err)
	}
}

// catchUp waits until the copy holds a revision.
func (s *standbyCopy) catchUp(t *testing.T, revision uint64) {
	t.Helper()
	for s.following().Latest().Revision() < revision {
		if _, err := s.following().Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A store that has forgotten the changes since the copy, and one that is older than the copy, make
// the process load everything.
func TestTakeoverLoadsEverythingIfTheStoreHasForgotten(t *testing.T) {
	clock := newClock()
	w := newWarmTest(t, clock)
	w.load(1)
	w.follow()
	copied := w.standby.copied.take()
	epoch := copied.Snapshot().Epoch() + 1
	w.load(1)
	w.l.stop()
	w.stored.forget()
	m := w.stored.member("standby")
	if _, ok := afterCopy(t.Context(), m, copied, epoch); ok {
		t.Error("the copy was used, although the store has forgotten what changed since")
	}
	if _, ok := afterCopy(t.Context(), newShared().member("empty"), copied, epoch); ok {
		t.Error("the copy was used for a store that is behind it")
	}
	term, err := w.standby.begin(t.Context(), m)
	if err != nil || m.loads != 1 {
		t.Fatalf("%v after %d loads", err, m.loads)
	}
	if err := term.engine.State().Check(); err != nil {
		t.Error(err)
	}
}

// A process that stands by follows the leader that the store names, takes over with its copy and
// reads nothing else; then its own standby does the same.
func TestStandbysTakeOverInTurnWithTheirCopies(t *testing.T) {
	s := newShared()
	processes := []*process{runMember(t, s)}
	<-processes[0].led
	for turn := range 3 {
		last := processes[len(processes)-1]
		f, unfollow := last.follow(nil)
		if err := f.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := runMember(t, s)
		<-next.following
		if _, err := f.Do(t.Context(), submit(job(fmt.Sprint("j", turn), 3))); err != nil {
			t.Fatal(err)
		}
		unfollow()
		last.stop()
		<-next.led
		s.mu.Lock()
		loads := s.leader.loads
		s.mu.Unlock()
		if loads > 0 {
			t.Errorf("turn %d: everything was loaded", turn)
		}
		processes = append(processes, next)
	}
	last := processes[len(processes)-1]
	f, unfollow := last.follow(nil)
	if err := f.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, err := f.Barrier(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for turn := range 3 {
		if _, ok := now.Get(wire.KindTask, wire.TaskKey(fmt.Sprint("j", turn), "work", 2)); !ok {
			t.Errorf("job %d is gone", turn)
		}
	}
	unfollow()
	last.stop()
}

// A standby tells once in a row why it cannot follow the leader, and whether it has a copy.
func TestAStandbyTellsWhyItCannotFollow(t *testing.T) {
	var told []string
	events := Events{
		NotFollowing: func(revision uint64, err error) { told = append(told, fmt.Sprint(revision > 0, " ", err)) },
		Following:    func(uint64, uint64) { told = append(told, "follows") },
	}
	leader := runMember(t, newShared())
	<-leader.led
	s := &standbyCopy{cfg: &Config{Listen: "unix:standby", Peers: leader.cfg.Listen, Events: events}}
	refused := errors.New("refused")
	s.disconnected(refused, 0)
	s.disconnected(refused, 0)
	s.live(1, 1, false)
	s.disconnected(refused, 0)
	want := []string{"false refused", "follows", "false refused"}
	if !slices.Equal(told, want) {
		t.Errorf("without a copy it told %q, want %q", told, want)
	}
	s.cfg.Events.Following = func(uint64, uint64) {}
	s.follow(t.Context(), "")
	if err := s.following().Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.cancel()
	s.ended.Wait()
	told = nil
	s.disconnected(errors.New("gone"), 0)
	if want := []string{"true gone"}; !slices.Equal(told, want) {
		t.Errorf("with a copy it told %q, want %q", told, want)
	}
	leader.stop()
}
