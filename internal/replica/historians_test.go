package replica

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func putHistorian(h plimsoll.Historian) wire.Mutation {
	return wire.Mutation{Kind: wire.KindHistorian, Key: h.Name, Value: wire.AppendHistorian(nil, &h)}
}

// The slowest historian decides from where events are held back. One of another instance lacks all.
func TestTheSlowestHistorianHoldsBack(t *testing.T) {
	h := Historians{}
	for _, step := range []struct {
		do   wire.Mutation
		want uint64
	}{
		{putHistorian(plimsoll.Historian{Name: "a", InstanceUUID: "i", Next: 7}), 7},
		{putHistorian(plimsoll.Historian{Name: "b", InstanceUUID: "i", Next: 5}), 5},
		{putHistorian(plimsoll.Historian{Name: "b", InstanceUUID: "i", Next: 9}), 7},
		{putHistorian(plimsoll.Historian{Name: "c"}), 0},
		{wire.Mutation{Kind: wire.KindHistorian, Key: "c"}, 7},
		{wire.Mutation{Kind: wire.KindJobStatus, Key: "a"}, 7},
		{wire.Mutation{Kind: wire.KindHistorian, Key: "a"}, 9},
		{wire.Mutation{Kind: wire.KindHistorian, Key: "b"}, ring.NoHold},
	} {
		if err := h.Follow([]wire.Mutation{step.do}); err != nil {
			t.Fatal(err)
		}
		if got := h.LackedFrom("i"); got != step.want {
			t.Errorf("%+v: events are held back from %d on, want %d", step.do, got, step.want)
		}
	}
}

// A position that moves on wakes those who read the historians, and nobody else: no watch, and no
// stream of events.
func TestAPositionWakesNoWatch(t *testing.T) {
	m := liveMirror(t)
	e := feed(t, m, batchMsg(2, 11, putHistorian(plimsoll.Historian{Name: "h", InstanceUUID: "i2", Next: 1})))
	if len(e.changes) != 1 || e.changes[0] != (change{wire.KindHistorian, "h"}) {
		t.Errorf("a position changes %+v", e.changes)
	}
}

// A record that cannot be read leaves the tables as they were.
func TestAMalformedHistorianIsRefused(t *testing.T) {
	m := liveMirror(t)
	bad := wire.Mutation{Kind: wire.KindHistorian, Key: "h", Value: []byte{0xff}}
	if _, err := m.step(batchMsg(2, 11, bad)); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("it is taken: %v", err)
	}
	if m.latest.Revision() != 10 || m.latest.Len(wire.KindHistorian) != 0 || len(m.tables.historians) != 0 {
		t.Errorf("the tables hold it at revision %d", m.latest.Revision())
	}
}
