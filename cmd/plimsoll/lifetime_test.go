package main

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

func TestAnArgumentNamesOneLifetimeOfAnID(t *testing.T) {
	first, second := plimsoll.MakeUID(1e18, 1), plimsoll.MakeUID(1e18, 2)
	for _, x := range []struct{ name, text, uid, want, refused string }{
		{"an id", "wordcount", "", "wordcount", ""},
		{"an id with a uid", "wordcount~" + first.String(), "", "wordcount~" + first.String(), ""},
		{"an id and --uid", "wordcount", first.String(), "wordcount~" + first.String(), ""},
		{"--uid alone", "", first.String(), "~" + first.String(), ""},
		{"both", "wordcount~" + first.String(), first.String(), "wordcount~" + first.String(), ""},
		{"both, which differ", "wordcount~" + first.String(), second.String(), "", "--uid: is another one"},
		{"no uid behind the mark", "wordcount~", "", "", "id: \"wordcount~\" is not an id, nor ID~UID"},
		{"no id before it", "~" + first.String(), "", "", "is not an id, nor ID~UID"},
		{"a wrong uid", "wordcount~x", "", "", "is not an id, nor ID~UID"},
		{"the uid of no job", "wordcount~" + strings.Repeat("0", 26), "", "", "is not an id, nor ID~UID"},
		{"a wrong --uid", "wordcount", "x", "", `--uid: "x" is not the uid of a job`},
		{"a --uid of no job", "wordcount", strings.Repeat("0", 26), "", "is not the uid of a job"},
		{"a long text", strings.Repeat("~", 1e6), "", "", "is not an id, nor ID~UID"},
	} {
		t.Run(x.name, func(t *testing.T) {
			got, err := parseLifetime("id", x.text, x.uid)
			switch {
			case x.refused == "" && (err != nil || got.String() != x.want):
				t.Errorf("%s, %v; want %s", got, err, x.want)
			case x.refused != "" && (err == nil || !strings.Contains(err.Error(), x.refused) || len(err.Error()) > 400):
				t.Errorf("%s, %.400v; want an error with %s", got, err, x.refused)
			}
		})
	}
}

// A text that is read as a lifetime is one text of it, and never loses its uid.
func FuzzParseLifetime(f *testing.F) {
	uid := plimsoll.MakeUID(1e18, 1).String()
	f.Add("wordcount", uid)
	f.Add("wordcount~"+uid, "")
	f.Fuzz(func(t *testing.T, text, uid string) {
		l, err := parseLifetime("id", text, uid)
		if err != nil {
			return
		}
		if again, err := parseLifetime("id", l.String(), ""); l.id != "" && (err != nil || again != l) {
			t.Errorf("%q and %q are read as %+v, and that as %+v: %v", text, uid, l, again, err)
		}
		if strings.Contains(text, "~") == l.uid.IsZero() && uid == "" {
			t.Errorf("%q is read as %+v", text, l)
		}
	})
}

// The events of jobs that had one id follow each other. Other jobs may have events between them.
func TestTheEventsOfOneLifetime(t *testing.T) {
	event := func(id uint64, at int64, job, task string, change plimsoll.ChangeType) client.EventRecord {
		return client.EventRecord{ID: id, Event: plimsoll.Event{
			Type: plimsoll.EventApp, Change: change, Time: at, Object: job, Reference: task,
		}}
	}
	all := []client.EventRecord{
		event(1, 5, "a", "", plimsoll.ChangeSet), // of a job whose submit is not kept
		event(2, 10, "a", "", plimsoll.ChangeAdd),
		event(3, 10, "a", "a.map.0", plimsoll.ChangeAdd),
		event(4, 12, "a.b", "", plimsoll.ChangeAdd), // another job
		event(5, 15, "a", "", plimsoll.ChangeRemove),
		event(6, 20, "a", "", plimsoll.ChangeAdd),
		event(7, 25, "a", "", plimsoll.ChangeSet),
	}
	for _, x := range []struct {
		name        string
		submitted   int64
		first, last uint64
	}{
		{"the last one", 20, 6, 7},
		{"one in between", 10, 2, 5},
		{"submitted a moment behind the time of its batch", 11, 2, 5},
		{"one whose submit is not kept", 4, 1, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			got := ofLifetime(all, "a", plimsoll.MakeUID(x.submitted, 1))
			if len(got) == 0 || got[0].ID != x.first || got[len(got)-1].ID != x.last {
				t.Errorf("got %+v, want events %d to %d", got, x.first, x.last)
			}
		})
	}
}
