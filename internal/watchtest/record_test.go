package watchtest

import (
	"strings"
	"testing"
)

// sent makes a record of one watch.
func sent(criteria func(string) bool, floor uint64, messages ...Message) *Record {
	r := NewRecord(criteria)
	r.Open(floor)
	for _, m := range messages {
		r.Receive(m)
	}
	return r
}

// A watcher that was sent other changes than the rest is found, also if it has criteria.
func TestRecordsThatContradictEachOtherAreFound(t *testing.T) {
	at := func(revision uint64) Point { return Point{1, revision, 0} }
	begin := Message{Changes: []Change{{Present, "a", "r1", 0}}, Point: at(1), SnapshotEnd: true}
	second := changes(at(2), Change{Updated, "a", "r2", 2}, Change{Added, "b", "s2", 2})
	third := changes(at(3), Change{Deleted, "a", "r2", 3})
	half := changes(at(2), Change{Updated, "a", "r2", 2})
	other := changes(at(2), Change{Updated, "a", "r9", 2}, Change{Added, "b", "s2", 2})
	later := Message{
		Changes: []Change{{Present, "a", "r2", 0}, {Present, "b", "s2", 0}}, Point: at(2), SnapshotEnd: true,
	}
	onlyR := func(value string) bool { return strings.HasPrefix(value, "r") }
	whole := sent(nil, 1, begin, second, third)
	for name, test := range map[string]struct {
		other *Record
		fault string
	}{
		"the same":              {sent(nil, 1, begin, second, third), ""},
		"begun later":           {sent(nil, 2, later, third), ""},
		"with criteria":         {sent(onlyR, 1, begin, half, third), ""},
		"a change is left out":  {sent(nil, 1, begin, half, third), "reliable"},
		"all of them":           {sent(nil, 1, begin, changes(at(3))), "reliable"},
		"another value":         {sent(nil, 1, begin, other), "unique or reliable"},
		"a change twice":        {sent(nil, 1, begin, second, second), "unique"},
		"an old snapshot":       {sent(nil, 2, begin), "strict"},
		"a snapshot of nothing": {sent(nil, 1, Message{Point: at(2), SnapshotEnd: true}), "strict"},
		"criteria, left out":    {sent(onlyR, 1, begin, third), "reliable"},
	} {
		checked, err := Join(whole, test.other).Check(test.other)
		if n, e := Join(whole, test.other).Check(whole); test.fault == "" && (e != nil || n != 1) {
			t.Errorf("%s: the whole record: %v, checked %d", name, e, n)
		}
		switch {
		case test.fault == "" && checked != 1:
			t.Errorf("%s: checked %d, want 1", name, checked)
		case test.fault == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
			t.Errorf("%s: %v, want %s", name, err, test.fault)
		}
	}
}

// Revisions that nobody was sent are bridged, and nothing is claimed about them.
func TestRevisionsThatNobodyWasSentAreNotKnown(t *testing.T) {
	early := sent(nil, 1, Message{Changes: []Change{{Present, "a", "1", 0}}, Point: Point{1, 1, 0}, SnapshotEnd: true})
	late := sent(nil, 4,
		Message{Changes: []Change{{Present, "b", "4", 0}}, Point: Point{1, 4, 0}, SnapshotEnd: true},
		changes(Point{1, 5, 0}, Change{Updated, "b", "5", 5}),
	)
	j := Join(early, late)
	for _, r := range []*Record{early, late} {
		if n, err := j.Check(r); err != nil || n != 1 {
			t.Errorf("checked %d: %v", n, err)
		}
	}
	if _, known := j.Changed("b", 3); known {
		t.Error("a change of revision 3 is known")
	}
	if changed, known := j.Changed("b", 5); !changed || !known {
		t.Errorf("the change of revision 5: %v, known: %v", changed, known)
	}
	if objects, ok := j.State(1, 5); !ok || objects["b"] != "5" || len(objects) != 1 {
		t.Errorf("revision 5: %v %v", objects, ok)
	}
	if _, ok := j.State(1, 2); ok {
		t.Error("the state of revision 2 is known")
	}
	if _, ok := j.State(2, 5); ok {
		t.Error("the state of another epoch is known")
	}
}

// A watch counts as checked only if there was something to check it against.
func TestWatchesThatCannotBeCheckedAreNotCounted(t *testing.T) {
	onlyR := func(value string) bool { return strings.HasPrefix(value, "r") }
	begin := func(epoch, revision uint64) Message {
		return Message{Changes: []Change{{Present, "a", "r", 0}}, Point: Point{epoch, revision, 0}, SnapshotEnd: true}
	}
	whole := sent(nil, 1, begin(1, 1), changes(Point{1, 3, 0}))
	of := NewRecord(onlyR)
	for _, m := range []Message{
		begin(1, 2),
		begin(1, 4), // behind all that the whole record was sent
		begin(2, 2), // of a leader that it did not see
		{Changes: []Change{{Present, "a", "r", 0}}}, // cut within the snapshot
	} {
		of.Open(1)
		of.Receive(m)
	}
	if checked, err := Join(whole, of).Check(of); checked != 1 || err != nil {
		t.Errorf("checked %d, want 1: %v", checked, err)
	}
}

// A watch that goes on at another leader is checked as two: what it holds behind the takeover must
// be the state there. So the difference that it was sent must be whole.
func TestAWatchThatGoesOnAtAnotherLeaderIsChecked(t *testing.T) {
	begin := Message{Changes: []Change{{Present, "a", "r1", 0}}, Point: Point{1, 1, 0}, SnapshotEnd: true}
	takeover := []Change{{Updated, "a", "r4", 4}, {Added, "b", "s4", 4}}
	last := changes(Point{2, 5, 0}, Change{Deleted, "b", "s4", 5})
	whole := sent(nil, 1, Message{
		Changes: []Change{{Present, "a", "r4", 0}, {Present, "b", "s4", 0}}, Point: Point{2, 4, 0}, SnapshotEnd: true,
	}, last)
	for name, test := range map[string]struct {
		messages []Message
		fault    string
	}{
		"in one message": {[]Message{changes(Point{2, 4, 0}, takeover...), last}, ""},
		"in two": {[]Message{
			changes(Point{1, 1, noResume}, takeover[0]), changes(Point{2, 4, 0}, takeover[1]), last,
		}, ""},
		"a change is left out": {[]Message{changes(Point{2, 4, 0}, takeover[1]), last}, "strict"},
		"all of them":          {[]Message{last}, "ordered"},
		"a change twice":       {[]Message{changes(Point{2, 4, 0}, takeover[1], takeover[1])}, "ordered"},
		"an object that was not there goes": {
			[]Message{changes(Point{2, 4, 0}, Change{Deleted, "c", "s4", 4})}, "ordered",
		},
	} {
		r := sent(nil, 1, append([]Message{begin}, test.messages...)...)
		checked, err := Join(whole, r).Check(r)
		switch {
		case test.fault == "" && (err != nil || checked != 2 || r.Takeovers() != 1 || r.Openings() != 1):
			t.Errorf("%s: checked %d, %d takeovers, %d openings: %v", name, checked, r.Takeovers(), r.Openings(), err)
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
			t.Errorf("%s: %v, want %s", name, err, test.fault)
		}
	}
	cut := sent(nil, 1, begin, changes(Point{1, 1, noResume}, takeover[0]))
	if got := cut.Point(); got != (Point{1, 1, noResume}) {
		t.Errorf("the point of a watch that was cut in a takeover is %v", got)
	}
}
