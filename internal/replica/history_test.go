package replica

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func TestHistoryMakesOneChangeOfAnObjectHoweverOftenABatchWritesIt(t *testing.T) {
	tables, h := NewTables(), NewHistory(0)
	h.Reset(1, 0)
	put := func(kind wire.Kind, key, value string) wire.Mutation {
		return wire.Mutation{Kind: kind, Key: key, Value: []byte(value)}
	}
	text := func(o *Object) string { return fmt.Sprintf("%s+%s@%s", o.Value, o.Extra, o.Node) }
	for i, step := range []struct {
		name      string
		mutations []wire.Mutation
		want      string
	}{
		{
			"a job with its specification",
			[]wire.Mutation{put(wire.KindJobSpec, "a", "spec"), put(wire.KindJobStatus, "a", "new")},
			"2 a: +@ to new+spec@; ",
		},
		{
			"its status twice",
			[]wire.Mutation{put(wire.KindJobStatus, "a", "1"), put(wire.KindJobStatus, "a", "2")},
			"2 a: new+spec@ to 2+spec@; ",
		},
		{"the same again", []wire.Mutation{put(wire.KindJobStatus, "a", "2")}, ""},
		{"the status of a node that is not there", []wire.Mutation{put(wire.KindNodeStatus, "n1", "use")}, ""},
		{"the node", []wire.Mutation{put(wire.KindNode, "n1", "node")}, "4 n1: +use@ to node+use@; "},
		{"its status", []wire.Mutation{put(wire.KindNodeStatus, "n1", "use2")}, "4 n1: node+use@ to node+use2@; "},
		{
			"tasks",
			[]wire.Mutation{taskPut("t", "1", ""), taskPut("u", "1", "n1")},
			"3 t: +@ to 1+@; 3 u: +@ to 1+@n1; ",
		},
		{
			"a task is bound, one goes",
			[]wire.Mutation{taskPut("t", "1", "n1"), remove(wire.KindTask, "u")},
			"3 t: 1+@ to 1+@n1; 3 u: 1+@n1 to +@; ",
		},
		{"comes and goes", []wire.Mutation{taskPut("v", "1", ""), remove(wire.KindTask, "v")}, ""},
		{
			"kinds without watches",
			[]wire.Mutation{put(wire.KindQueueConfig, "", "c"), put(wire.KindOutcome, "o", "1")},
			"",
		},
	} {
		before := h.View()
		mustHistory(h, tables, &wire.Batch{Epoch: 1, Revision: uint64(i + 1), Mutations: step.mutations})
		got := ""
		for kind := range wire.Kind(wire.NumKinds) {
			changes, ok := h.View().From(kind, before.End(kind))
			if !ok {
				t.Fatalf("%s: the position is gone", step.name)
			}
			for _, c := range changes {
				got += fmt.Sprintf("%d %s: %s to %s; ", c.Kind, c.Key, text(&c.Old), text(&c.New))
			}
		}
		if got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// historyModel is all task changes of a history, with the position of each.
type historyModel struct {
	t      *testing.T
	rng    *rand.Rand
	tables *Tables
	h      *History
	all    []*Change // since the last reset; all[i] is at position begin+i
	begin  uint64
}

// TestViewsOfAHistoryHoldEveryChangeWithinTheBound holds random histories against a list of all
// changes: positions, points and views that are older.
func TestViewsOfAHistoryHoldEveryChangeWithinTheBound(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(20, 40, 5000)
	for i := range runs {
		seed := first + uint64(i)
		rng := rand.New(rand.NewPCG(seed, 0))
		limit := changeOverhead * (1 + rng.IntN(200))
		m := &historyModel{t: t, rng: rng, tables: NewTables(), h: NewHistory(limit)}
		m.reset(1, 0)
		var old *Changes
		var oldLen int
		for step := range 300 {
			m.apply()
			if rng.IntN(100) == 0 {
				m.reset(m.h.version.Epoch+1, m.h.version.Revision+1)
				old = nil
			}
			if rng.IntN(40) == 0 {
				m.takeOver()
			}
			v := m.h.View()
			m.check(v)
			if old != nil {
				m.checkOld(old, oldLen)
			}
			if rng.IntN(20) == 0 {
				old, oldLen = v, v.Len(wire.KindTask)
			}
			if t.Failed() {
				t.Fatalf("at step %d of PLIMSOLL_SEED=%d", step, seed)
			}
		}
	}
}

func (m *historyModel) reset(epoch, revision uint64) {
	mustApply(m.tables, &wire.Batch{Epoch: epoch, Revision: revision})
	m.h.Reset(epoch, revision)
	m.all, m.begin = nil, m.h.View().End(wire.KindTask)
}

func (m *historyModel) apply() {
	revision := m.h.version.Revision + 1 + m.rng.Uint64N(2)
	var mutations []wire.Mutation
	for range m.rng.IntN(6) {
		key := fmt.Sprint("t", m.rng.IntN(20))
		switch m.rng.IntN(4) {
		case 0:
			mutations = append(mutations, remove(wire.KindTask, key))
		case 1: // many bytes of another kind
			other := wire.Mutation{Kind: wire.KindQueueStatus, Key: "q", Value: fmt.Append(nil, revision)}
			mutations = append(mutations, other)
		default:
			mutations = append(mutations, taskPut(key, fmt.Sprint(revision, m.rng.IntN(3)), "n"))
		}
	}
	end := m.h.View().End(wire.KindTask)
	mustHistory(m.h, m.tables, &wire.Batch{Epoch: m.h.version.Epoch, Revision: revision, Mutations: mutations})
	m.note(end)
}

// takeOver makes the history follow a snapshot of the next leader.
func (m *historyModel) takeOver() {
	was := m.tables.Snapshot()
	m.tables = copyOf(was)
	var mutations []wire.Mutation
	for range m.rng.IntN(10) {
		key := fmt.Sprint("t", m.rng.IntN(20))
		mutations = append(mutations, taskPut(key, fmt.Sprint("taken over", m.rng.IntN(5)), ""))
	}
	mustApply(m.tables, &wire.Batch{
		Epoch: was.epoch + 1 + m.rng.Uint64N(2), Revision: was.revision + m.rng.Uint64N(3), Mutations: mutations,
	})
	end := m.h.View().End(wire.KindTask)
	m.h.Follow(was, m.tables.Snapshot())
	if m.h.View().Len(wire.KindTask) == 0 { // the difference may not have fitted
		m.all, m.begin = nil, m.h.View().End(wire.KindTask)
		return
	}
	m.note(end)
}

// note appends the changes that have come behind a position.
func (m *historyModel) note(end uint64) {
	added := m.h.View().End(wire.KindTask) - end
	if m.h.View().Bytes() > m.h.limit {
		m.t.Errorf("the history has %d bytes, more than %d", m.h.View().Bytes(), m.h.limit)
	}
	made, ok := m.h.View().From(wire.KindTask, end)
	if !ok { // the batch is larger than the bound: take what is left
		made, _ = m.h.View().From(wire.KindTask, m.h.logs[wire.KindTask].first)
		m.all = append(m.all, make([]*Change, int(added)-len(made))...)
	}
	m.all = append(m.all, made...)
}

// check compares the positions and points of a view with all changes.
func (m *historyModel) check(v *Changes) {
	end := v.End(wire.KindTask)
	if int(end-m.begin) != len(m.all) {
		m.t.Errorf("the view ends at %d, want %d", end-m.begin, len(m.all))
	}
	for position := end - uint64(v.Len(wire.KindTask)); position <= end; position++ {
		changes, ok := v.From(wire.KindTask, position)
		if !ok || len(changes) != int(end-position) {
			m.t.Fatalf("behind %d there are %d changes, %v", position, len(changes), ok)
		}
		for i, c := range changes {
			if m.all[int(position-m.begin)+i] != c {
				m.t.Fatalf("another change at position %d", position)
			}
		}
		point := v.PointAt(wire.KindTask, position)
		back, err := v.After(wire.KindTask, point)
		if err == nil && back != position {
			m.t.Errorf("position %d is the point %v, which is position %d", position, point, back)
		}
		if plimsoll.CodeOf(err) == plimsoll.CodeStale && point.Part != noResume &&
			!point.version().Before(v.logs[wire.KindTask].base) {
			m.t.Errorf("the point %v behind %d: %v", point, v.logs[wire.KindTask].base, err)
		}
	}
	if _, ok := v.From(wire.KindTask, end+1); ok {
		m.t.Error("there are changes behind a position beyond the end")
	}
	first := end - uint64(v.Len(wire.KindTask))
	if _, ok := v.From(wire.KindTask, first-1); ok {
		m.t.Error("there are changes behind a position that was dropped")
	}
}

// checkOld checks that later batches leave a view alone.
func (m *historyModel) checkOld(v *Changes, length int) {
	changes, ok := v.From(wire.KindTask, v.End(wire.KindTask)-uint64(length))
	if !ok || len(changes) != length {
		m.t.Errorf("an older view now has %d changes, and had %d", len(changes), length)
	}
	last := uint64(0)
	for _, c := range changes {
		if c.Revision < last || c.Revision > v.Revision() {
			m.t.Errorf("an older view of revision %d now has a change of revision %d", v.Revision(), c.Revision)
		}
		last = c.Revision
	}
}

func TestPointsThatAHistoryCannotResumeFromAreStale(t *testing.T) {
	tables, h := NewTables(), NewHistory(4*changeOverhead+100)
	h.Reset(3, 10)
	for revision := uint64(11); revision <= 20; revision++ {
		mustHistory(h, tables, &wire.Batch{Epoch: 3, Revision: revision, Mutations: []wire.Mutation{
			taskPut("t", fmt.Sprint(revision), ""), taskPut("u", fmt.Sprint(revision), ""),
		}})
	}
	v := h.View() // revisions 19 and 20
	for _, step := range []struct {
		point Point
		code  plimsoll.Code
		ahead uint64 // changes behind the point
	}{
		{Point{3, 20, 0}, 0, 0},
		{Point{3, 19, 1}, 0, 1},
		{Point{3, 18, 0}, 0, 4},
		{Point{3, 17, 0}, plimsoll.CodeStale, 0},
		{Point{3, 21, 0}, plimsoll.CodeStale, 0},
		{Point{2, 20, 0}, plimsoll.CodeStale, 0},
		{Point{4, 20, 0}, plimsoll.CodeStale, 0},
		{Point{3, 19, 3}, plimsoll.CodeInvalid, 0},
		{Point{3, 20, 1}, plimsoll.CodeInvalid, 0},
	} {
		position, err := v.After(wire.KindTask, step.point)
		if step.code != 0 {
			if plimsoll.CodeOf(err) != step.code {
				t.Errorf("%v: %v, want %v", step.point, err, step.code)
			}
			continue
		}
		if err != nil || v.End(wire.KindTask)-position != step.ahead {
			t.Errorf("%v: %d changes ahead (%v), want %d", step.point, v.End(wire.KindTask)-position, err, step.ahead)
		}
	}
}

// Replaying the history over the tables that it began with gives the tables at its end.
func TestHistoryReplaysToTheTables(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 1))
	tables, h := NewTables(), NewHistory(1<<20)
	h.Reset(1, 0)
	for revision := range uint64(200) {
		var mutations []wire.Mutation
		for range rng.IntN(5) {
			key := fmt.Sprint("t", rng.IntN(10))
			mutations = append(mutations, taskPut(key, fmt.Sprint(revision, rng.IntN(2)), fmt.Sprint("n", rng.IntN(2))))
			if rng.IntN(3) == 0 {
				mutations = append(mutations, remove(wire.KindTask, key))
			}
		}
		mustHistory(h, tables, &wire.Batch{Epoch: 1, Revision: revision + 1, Mutations: mutations})
	}
	replayed, want := map[string]string{}, map[string]string{}
	changes, _ := h.View().From(wire.KindTask, h.logs[wire.KindTask].first)
	for _, c := range changes {
		if replayed[c.Key] != string(c.Old.Value) {
			t.Fatalf("before revision %d %s is %q, want %q", c.Revision, c.Key, c.Old.Value, replayed[c.Key])
		}
		if replayed[c.Key] = string(c.New.Value); c.New.Value == nil {
			delete(replayed, c.Key)
		}
	}
	for key, value := range tables.Snapshot().Scan(wire.KindTask, "", "") {
		want[key] = string(value)
	}
	if !maps.Equal(replayed, want) {
		t.Errorf("replayed %v, want %v", replayed, want)
	}
}

func TestChangesOfOneKindDoNotPushOutThoseOfAnother(t *testing.T) {
	tables, h := NewTables(), NewHistory(20*changeOverhead)
	h.Reset(1, 0)
	mustHistory(h, tables, &wire.Batch{Epoch: 1, Revision: 1, Mutations: []wire.Mutation{put("a", "1")}})
	for revision := uint64(2); revision < 100; revision++ {
		mustHistory(h, tables, &wire.Batch{Epoch: 1, Revision: revision, Mutations: []wire.Mutation{
			taskPut("t", fmt.Sprint(revision), ""),
		}})
	}
	v := h.View()
	if v.Len(wire.KindJobStatus) != 1 || v.Len(wire.KindTask) > 20 || v.Len(wire.KindTask) < 15 {
		t.Errorf("%d changes of jobs and %d of tasks are kept", v.Len(wire.KindJobStatus), v.Len(wire.KindTask))
	}
	if _, err := v.After(wire.KindJobStatus, Point{Epoch: 1, Revision: 1}); err != nil {
		t.Errorf("a watch of jobs cannot resume: %v", err)
	}
}

func TestSharedIsMadeOnce(t *testing.T) {
	c, made := &Change{}, 0
	for range 3 {
		if got := c.Shared(func(*Change) any { made++; return made }); got != 1 {
			t.Errorf("a reader got %v", got)
		}
	}
}

// The history's memory stays within its bound, also if the log of one kind keeps changes of batches
// whose other changes are dropped.
func TestAHistoryTakesNoMoreMemoryThanItsBound(t *testing.T) {
	const limit = 2 << 20
	tables, h := NewTables(), NewHistory(limit)
	h.Reset(1, 0)
	value := bytes.Repeat([]byte("x"), 300)
	heap := func() int {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc)
	}
	before := heap()
	for revision := range uint64(1000) {
		b := &wire.Batch{Epoch: 1, Revision: revision + 1, Mutations: []wire.Mutation{
			{Kind: wire.KindQueueStatus, Key: "root", Value: strconv.AppendUint(nil, revision, 10)},
		}}
		for i := range 50 {
			of := strconv.AppendUint(bytes.Clone(value), revision, 10)
			b.Mutations = append(b.Mutations, wire.Mutation{Kind: wire.KindPolicy, Key: strconv.Itoa(i), Value: of})
		}
		mustHistory(h, tables, b)
	}
	if grown := heap() - before; grown > 2*limit {
		t.Errorf("the history takes %d bytes, and says %d", grown, h.View().Bytes())
	}
	runtime.KeepAlive(h)
}

// mustHistory applies a batch that no index refuses.
func mustHistory(h *History, t *Tables, b *wire.Batch) {
	if err := h.Apply(t, b); err != nil {
		panic(err)
	}
}
