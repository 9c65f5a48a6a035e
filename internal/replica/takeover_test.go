package replica

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// copyOf returns tables with the records of a snapshot.
func copyOf(s *Snapshot) *Tables {
	tables := NewTables()
	var records []wire.Mutation
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		for key, value := range s.Scan(kind, "", "") {
			m := wire.Mutation{Kind: kind, Key: key, Value: value}
			if kind == wire.KindTask {
				m.Node = s.NodeOf(key)
			}
			records = append(records, m)
		}
	}
	mustApply(tables, &wire.Batch{Epoch: s.epoch, Revision: s.revision, Mutations: records})
	return tables
}

// A history goes on over a takeover: the difference is one change for each object, and the points
// in front of it and behind it are known.
func TestAHistoryGoesOnWhenAnotherLeaderTakesOver(t *testing.T) {
	tables, h := NewTables(), NewHistory(0)
	h.Reset(1, 0)
	mustHistory(h, tables, &wire.Batch{Epoch: 1, Revision: 10, Mutations: []wire.Mutation{
		taskPut("a", "old", "n1"), taskPut("b", "stays", "n1"), taskPut("c", "goes", ""),
		{Kind: wire.KindJobStatus, Key: "j", Value: []byte("status")},
		{Kind: wire.KindJobSpec, Key: "j", Value: []byte("spec")},
	}})
	was := tables.Snapshot()
	next := copyOf(was)
	mustApply(next, &wire.Batch{Epoch: 2, Revision: 12, Mutations: []wire.Mutation{
		taskPut("a", "new", "n2"), remove(wire.KindTask, "c"), taskPut("d", "comes", ""),
		{Kind: wire.KindJobSpec, Key: "j", Value: []byte("another spec")},
	}})
	generation := h.View().Generation()
	h.Follow(was, next.Snapshot())
	mustHistory(h, next, &wire.Batch{Epoch: 2, Revision: 13, Mutations: []wire.Mutation{taskPut("e", "later", "")}})
	v := h.View()
	if v.Generation() != generation || v.Epoch() != 2 || v.Revision() != 13 {
		t.Errorf("generation %d, epoch %d, revision %d", v.Generation(), v.Epoch(), v.Revision())
	}
	for _, test := range []struct {
		point Point
		kind  wire.Kind
		want  string
	}{
		{Point{1, 10, 0}, wire.KindTask, "2.12 a, 2.12 c, 2.12 d, 2.13 e"},
		{Point{1, 10, 0}, wire.KindJobStatus, "2.12 j"},
		{Point{2, 12, 0}, wire.KindTask, "2.13 e"},
		{Point{1, 9, 2}, wire.KindTask, "1.10 c, 2.12 a, 2.12 c, 2.12 d, 2.13 e"},
		{Point{1, 11, 0}, wire.KindTask, "stale"},
		{Point{1, 10, 1}, wire.KindTask, "stale"},
		{Point{2, 11, 0}, wire.KindTask, "stale"},
		{Point{1, 10, noResume}, wire.KindTask, "stale"},
		{Point{2, 13, noResume}, wire.KindTask, "stale"},
		{Point{3, 1, 0}, wire.KindTask, "stale"},
		{Point{2, 14, 0}, wire.KindTask, "stale"},
	} {
		if got := changesBehind(v, test.kind, test.point); got != test.want {
			t.Errorf("behind %v: %s, want %s", test.point, got, test.want)
		}
	}
}

// changesBehind lists the changes behind a point.
func changesBehind(v *Changes, kind wire.Kind, p Point) string {
	position, err := v.After(kind, p)
	if err != nil {
		return strings.ToLower(plimsoll.CodeOf(err).String())
	}
	changes, _ := v.From(kind, position)
	var all []string
	for _, c := range changes {
		all = append(all, fmt.Sprintf("%d.%d %s", c.Epoch, c.Revision, c.Key))
	}
	return strings.Join(all, ", ")
}

// A history begins anew where no difference would be right.
func TestAHistoryBeginsAnew(t *testing.T) {
	for _, test := range []struct {
		name            string
		epoch, revision uint64
		anew            bool
	}{
		{"a later leader", 2, 11, false},
		{"a later leader that stored nothing", 2, 10, false},
		{"a store that was restored from a backup", 2, 9, true},
		{"the same leader, whose batches are no longer there", 1, 11, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			tables, h := NewTables(), NewHistory(0)
			h.Reset(1, 9)
			first := []wire.Mutation{taskPut("a", "1", "")}
			mustHistory(h, tables, &wire.Batch{Epoch: 1, Revision: 10, Mutations: first})
			next := NewTables()
			mustApply(next, &wire.Batch{Epoch: test.epoch, Revision: test.revision, Mutations: []wire.Mutation{
				taskPut("b", "2", ""), taskPut("c", "2", ""),
			}})
			before := h.View().Generation()
			h.Follow(tables.Snapshot(), next.Snapshot())
			v := h.View()
			if anew := v.Generation() != before; anew != test.anew {
				t.Errorf("it began anew: %v, want %v", anew, test.anew)
			}
			if v.Epoch() != test.epoch || v.Revision() != test.revision {
				t.Errorf("it is at %d of %d", v.Revision(), v.Epoch())
			}
		})
	}
}

// A kind of object whose difference is larger than the history begins anew, and the others go on.
func TestAKindBeginsAnewIfItsDifferenceDoesNotFit(t *testing.T) {
	queuePut := func(key, value string) wire.Mutation {
		return wire.Mutation{Kind: wire.KindQueueStatus, Key: key, Value: []byte(value)}
	}
	tables, h := NewTables(), NewHistory(3*changeOverhead)
	h.Reset(1, 9)
	mustHistory(h, tables, &wire.Batch{Epoch: 1, Revision: 10, Mutations: []wire.Mutation{
		taskPut("a", "1", ""), queuePut("root", "1"),
	}})
	was := tables.Snapshot()
	next := copyOf(was)
	var mutations []wire.Mutation
	for i := range 4 {
		mutations = append(mutations, taskPut(fmt.Sprint("b", i), "2", ""))
	}
	mustApply(next, &wire.Batch{Epoch: 2, Revision: 11, Mutations: append(mutations, queuePut("root", "2"))})
	h.Follow(was, next.Snapshot())
	v := h.View()
	from := Point{Epoch: 1, Revision: 10}
	if got := changesBehind(v, wire.KindTask, from); got != "stale" {
		t.Errorf("of tasks there are %s", got)
	}
	if got := changesBehind(v, wire.KindQueueStatus, from); got != "2.11 root" {
		t.Errorf("of queues there are %s", got)
	}
	if v.Len(wire.KindTask) != 0 || v.Bytes() > 3*changeOverhead {
		t.Errorf("%d changes of tasks are kept, in %d bytes", v.Len(wire.KindTask), v.Bytes())
	}
	if got := changesBehind(v, wire.KindTask, Point{Epoch: 2, Revision: 11}); got != "" {
		t.Errorf("behind the snapshot of the next leader there are %s", got)
	}
}

// A copy of another leader has the records of the one before, where they are equal.
func TestTheNextCopyHasTheRecordsOfTheLastOne(t *testing.T) {
	m := liveMirror(t)
	first := m.latest
	old, _ := first.Get(wire.KindJobStatus, "a")
	m.open("g")
	feed(t, m, welcomeMsg(3, "i3", false), partMsg(pb.Kind_KIND_JOB_STATUS, "a"), endMsg(12))
	if now, _ := m.latest.Get(wire.KindJobStatus, "a"); &now[0] != &old[0] {
		t.Error("an equal record has other bytes")
	}
	if !m.latest.sameObjects(first, wire.KindJobStatus) {
		t.Error("a kind without a change has another table")
	}
	if s := m.latest; s.Epoch() != 3 || s.Revision() != 12 || s.Bytes() != first.Bytes() {
		t.Errorf("the snapshot is of epoch %d, revision %d, and has %d bytes", s.Epoch(), s.Revision(), s.Bytes())
	}
	m.open("g")
	feed(t, m, welcomeMsg(4, "i4", false), partMsg(pb.Kind_KIND_JOB_STATUS, "b"))
	if _, err := m.step(partMsg(pb.Kind_KIND_JOB_STATUS, "a")); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("records out of order give %v", err)
	}
}

// A history knows a bounded number of takeovers, and drops the changes before them.
func TestAHistoryForgetsOldTakeovers(t *testing.T) {
	tables, h := NewTables(), NewHistory(0)
	h.Reset(1, 0)
	for epoch := range uint64(3 * maxTakeovers) {
		mustHistory(h, tables, &wire.Batch{Epoch: epoch + 1, Revision: epoch + 1, Mutations: []wire.Mutation{
			taskPut("a", fmt.Sprint(epoch), ""),
		}})
		was := tables.Snapshot()
		tables = copyOf(was)
		mustApply(tables, &wire.Batch{Epoch: epoch + 2, Revision: epoch + 1})
		h.Follow(was, tables.Snapshot())
	}
	v := h.View()
	if n := len(v.takeovers); n != maxTakeovers {
		t.Errorf("it knows %d takeovers", n)
	}
	if n := v.Len(wire.KindTask); n != maxTakeovers {
		t.Errorf("it has %d changes, want those between the takeovers", n)
	}
	const last = 2 * maxTakeovers
	if got := changesBehind(v, wire.KindTask, Point{Epoch: last + 1, Revision: last}); got == "stale" {
		t.Error("the oldest point that it knows is stale")
	}
	if got := changesBehind(v, wire.KindTask, Point{Epoch: last, Revision: last}); got != "stale" {
		t.Errorf("behind a point that it has forgotten: %s", got)
	}
}

// watchedGateway is a gateway with all that a watcher of it has been sent.
type watchedGateway struct {
	tables *Tables
	h      *History
	begin  uint64 // position of the first change
}

// TestAPointIsRightAtEachGateway lets gateways follow leaders, each as far and from where it comes.
// Wherever a watcher of one of them goes on at another, it gets exactly what it lacks.
func TestAPointIsRightAtEachGateway(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(30, 200, 20000)
	resumed := 0
	for i := range uint64(runs) {
		rng := rand.New(rand.NewPCG(first+i, 5))
		gateways := make([]*watchedGateway, 3)
		for i := range gateways {
			gateways[i] = &watchedGateway{tables: NewTables(), h: NewHistory(0)}
			mustApply(gateways[i].tables, &wire.Batch{Epoch: 1})
			gateways[i].h.Reset(1, 0)
			gateways[i].begin = gateways[i].h.View().End(wire.KindTask)
		}
		leader := NewTables()
		mustApply(leader, &wire.Batch{Epoch: 1})
		for range 1 + rng.IntN(5) {
			leader = term(rng, leader, gateways)
		}
		for from, a := range gateways {
			for to, b := range gateways {
				n, err := resumes(a, b)
				if err != nil {
					t.Fatalf("from gateway %d to %d: %v\nreplay with PLIMSOLL_SEED=%d", from, to, err, first+i)
				}
				resumed += n
			}
		}
	}
	if resumed == 0 {
		t.Error("no watcher could go on at another gateway")
	}
}

// term lets a leader make batches. A gateway takes them up to some revision, from a snapshot of
// some revision on if it followed the leader before. It returns the state of the next leader.
func term(rng *rand.Rand, leader *Tables, gateways []*watchedGateway) *Tables {
	var batches []*wire.Batch
	snapshots := []*Snapshot{leader.Snapshot()}
	for range rng.IntN(5) {
		b := &wire.Batch{Epoch: leader.epoch, Revision: leader.revision + 1, Mutations: randomTasks(rng)}
		mustApply(leader, b)
		batches, snapshots = append(batches, b), append(snapshots, leader.Snapshot())
	}
	for _, g := range gateways {
		at := 0
		if leader.epoch > 1 {
			if rng.IntN(5) == 0 {
				continue // it never follows this leader
			}
			at = rng.IntN(len(snapshots))
			was := g.tables.Snapshot()
			g.tables = copyOf(snapshots[at])
			g.h.Follow(was, g.tables.Snapshot())
		}
		for _, b := range batches[at : at+rng.IntN(len(batches)-at+1)] {
			mustHistory(g.h, g.tables, b)
		}
	}
	next := copyOf(leader.Snapshot())
	mustApply(next, &wire.Batch{
		Epoch: leader.epoch + 1, Revision: leader.revision + rng.Uint64N(2), Mutations: randomTasks(rng),
	})
	return next
}

func randomTasks(rng *rand.Rand) (mutations []wire.Mutation) {
	for range rng.IntN(4) {
		key := fmt.Sprint("t", rng.IntN(6))
		if rng.IntN(3) == 0 {
			mutations = append(mutations, remove(wire.KindTask, key))
			continue
		}
		mutations = append(mutations, taskPut(key, fmt.Sprint(rng.IntN(1000)), ""))
	}
	return mutations
}

// resumes lets a watcher of one gateway go on at another from each of its points.
func resumes(a, b *watchedGateway) (resumed int, err error) {
	seen, va, vb := map[string]string{}, a.h.View(), b.h.View()
	all, _ := va.From(wire.KindTask, a.begin)
	want := map[string]string{}
	for key, value := range b.tables.Snapshot().Scan(wire.KindTask, "", "") {
		want[key] = string(value)
	}
	for i := range len(all) + 1 {
		if i > 0 {
			if err := replay(seen, all[i-1]); err != nil {
				return resumed, err
			}
		}
		point := va.PointAt(wire.KindTask, a.begin+uint64(i))
		if ahead := point.version() == vb.version && point.Part > 0; ahead {
			continue // the strict read in front of a watch waits for that batch
		}
		if position, err := vb.After(wire.KindTask, point); err == nil {
			rest, _ := vb.From(wire.KindTask, position)
			state := maps.Clone(seen)
			for _, c := range rest {
				if err := replay(state, c); err != nil {
					return resumed, fmt.Errorf("behind %v: %w", point, err)
				}
			}
			if !maps.Equal(state, want) {
				return resumed, fmt.Errorf("behind %v: %v, want %v", point, state, want)
			}
			resumed++
		} else if plimsoll.CodeOf(err) != plimsoll.CodeStale {
			return resumed, err
		}
	}
	return resumed, nil
}

// replay applies a change to a state that must be the one before it.
func replay(state map[string]string, c *Change) error {
	if old, has := state[c.Key]; has != (c.Old.Value != nil) || old != string(c.Old.Value) {
		return fmt.Errorf("the change of %s at %v is from %q, and it was %q", c.Key, c.version(), c.Old.Value, old)
	}
	if state[c.Key] = string(c.New.Value); c.New.Value == nil {
		delete(state, c.Key)
	}
	return nil
}

// BenchmarkTakeoverOfAHistory compares the copy of a gateway with the snapshot of the next leader.
// One in a thousand of the tasks differs.
func BenchmarkTakeoverOfAHistory(b *testing.B) {
	const tasks = 1_000_000
	tables := [2]*Tables{NewTables(), NewTables()}
	for i := range tables {
		var records []wire.Mutation
		for n := range tasks {
			value := fmt.Appendf(nil, "%0200d", n)
			if n%1000 == 0 {
				value[0] = byte('0' + i)
			}
			m := taskPut(wire.TaskKey(fmt.Sprint("job-", n/100), "main", int32(n%100)), string(value), "n1")
			records = append(records, m)
		}
		mustApply(tables[i], &wire.Batch{Epoch: uint64(i + 1), Revision: 1, Mutations: records})
	}
	was, is := tables[0].Snapshot(), tables[1].Snapshot()
	for b.Loop() {
		h := NewHistory(0)
		h.Reset(1, 1)
		if h.Follow(was, is); h.View().Len(wire.KindTask) != tasks/1000 {
			b.Fatalf("it has %d changes", h.View().Len(wire.KindTask))
		}
	}
}
