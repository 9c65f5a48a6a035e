package watchtest

import (
	"strings"
	"testing"
)

// written is a history in which objects with an r run: a and b at revision 1, then changes of both.
func written() *History {
	h := &History{}
	h.Add(1, 1, Write{"a", "r1"}, Write{"b", "r1"}, Write{"c", "s1"})
	h.Add(1, 2, Write{"a", "r2"}, Write{"b", "s2"})
	h.Add(1, 3, Write{"c", "r3"}, Write{"a", ""})
	return h
}

func snapshot(revision uint64, keys ...string) Message {
	m := Message{SnapshotEnd: true, Point: Point{Epoch: 1, Revision: revision}}
	for _, key := range keys {
		m.Changes = append(m.Changes, Change{Type: Present, Key: key, Value: "r1"})
	}
	return m
}

func changes(p Point, all ...Change) Message { return Message{Point: p, Changes: all} }

// Each fault of a watch is found, by the name of the check that it fails.
func TestEachFaultOfAWatchIsFound(t *testing.T) {
	begin := snapshot(1, "a", "b")
	update := Change{Updated, "a", "r2", 2}
	left := Change{Left, "b", "s2", 2}
	added, deleted := Change{Added, "c", "r3", 3}, Change{Deleted, "a", "r2", 3}
	at := func(revision uint64, part uint32) Point { return Point{1, revision, part} }
	for name, test := range map[string]struct {
		messages []Message
		fault    string // empty: there is none
	}{
		"all": {[]Message{begin, changes(at(2, 0), update, left), changes(at(3, 0), added, deleted)}, ""},
		"a batch in parts, and bookmarks": {[]Message{
			begin, changes(at(1, 1), update), changes(at(2, 0), left), changes(at(2, 0)),
			changes(at(3, 0), added, deleted),
		}, ""},
		"a snapshot without an object":    {[]Message{snapshot(1, "a")}, "strict"},
		"a snapshot with another object":  {[]Message{snapshot(1, "a", "b", "c")}, "strict"},
		"a snapshot that is too old":      {[]Message{snapshot(0)}, "strict"},
		"an object twice in the snapshot": {[]Message{snapshot(1, "a", "a")}, "unique"},
		"two snapshots":                   {[]Message{begin, begin}, "ordered"},
		"a change within the snapshot":    {[]Message{changes(Point{}, update)}, "ordered"},
		"a point within the snapshot":     {[]Message{changes(at(1, 0))}, "bookmarkable"},
		"no point":                        {[]Message{begin, changes(Point{}, update)}, "bookmarkable"},
		"an earlier epoch":                {[]Message{begin, changes(Point{0, 2, 0}, update, left)}, "bookmarkable"},
		"a point that goes back": {
			[]Message{begin, changes(at(2, 0), update, left), changes(at(1, 1))}, "bookmarkable",
		},
		"a point before its time":   {[]Message{begin, changes(at(2, 0), update)}, "reliable"},
		"a change in another order": {[]Message{begin, changes(at(2, 0), left, update)}, "reliable or ordered"},
		"a change twice": {
			[]Message{begin, changes(at(2, 0), update, left), changes(at(2, 0), left)}, "unique",
		},
		"a change left out": {[]Message{begin, changes(at(2, 0), left)}, "reliable"},
		"another type": {
			[]Message{begin, changes(at(2, 0), update, Change{Deleted, "b", "r1", 2})}, "unique or reliable",
		},
		"not all": {[]Message{begin, changes(at(2, 0), update, left)}, "reliable: 2 changes have not come"},
		"nothing": {nil, "reliable: the snapshot"},
	} {
		c := NewChecker(written(), func(value string) bool { return strings.HasPrefix(value, "r") })
		c.Open(1)
		var err error
		for _, m := range test.messages {
			if err = c.Receive(m); err != nil {
				break
			}
		}
		if err == nil {
			err = c.Complete()
		}
		switch {
		case test.fault == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.fault != "" && (err == nil || !strings.HasPrefix(err.Error(), test.fault)):
			t.Errorf("%s: %v, want %s", name, err, test.fault)
		}
	}
}
