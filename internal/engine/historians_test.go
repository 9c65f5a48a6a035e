package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// report sends a report of a historian, and returns whether its record was written.
func (w *scenario) reportHistorian(name, instance string, next uint64) (written bool) {
	w.turn(&engine.ReportHistorian{Name: name, Instance: instance, Next: next})
	return len(w.out.Changes.Historians) > 0
}

func (w *scenario) historians() (list []string) {
	for _, h := range w.engine.State().Historians() {
		list = append(list, fmt.Sprintf("%s@%s%d", h.Name, h.InstanceUUID, h.Next))
	}
	return list
}

// expect compares the registered historians with those that the records hold, and with a list.
func (w *scenario) expect(want string) {
	w.t.Helper()
	if got := strings.Join(w.historians(), " "); got != want || len(w.historians()) != len(w.records.historians) {
		w.t.Errorf("registered are %q, and %d records; want %q", got, len(w.records.historians), want)
	}
}

// A report costs a record at most every two seconds, and one that says the same every minute.
func TestReportsOfAHistorianAreCoalesced(t *testing.T) {
	w := newScenario(t)
	for _, step := range []struct {
		after   time.Duration
		next    uint64
		written bool
	}{
		{0, 0, true},                         // the first
		{0, 5, false},                        // in the same instant
		{time.Second, 6, false},              // too soon
		{time.Second, 7, true},               // two seconds after the last that was kept
		{10 * time.Second, 7, false},         // the same
		{49 * time.Second, 7, false},         // the same
		{time.Second, 7, true},               // the same, a minute after the last that was kept
		{2 * time.Second, 9, true},           // further
		{1999 * time.Millisecond, 10, false}, // too soon
	} {
		w.now += int64(step.after)
		if written := w.reportHistorian("h", "i", step.next); written != step.written {
			t.Errorf("%d after %s: written is %v", step.next, step.after, written)
		}
	}
	if w.now++; !w.reportHistorian("h", "j", 0) { // soon, but it lacks other events than was known
		t.Error("a report of another InstanceUUID was not kept")
	}
	w.expect("h@j0")
	if changes := &w.out.Changes; len(changes.Events) > 0 || len(changes.Outcomes) > 0 {
		t.Errorf("a report makes %d events and %d outcomes", len(changes.Events), len(changes.Outcomes))
	}
}

// A position does not go back: whoever lacks more than is known is another history. It is told what
// to do, and nothing changes. Behind a removal it registers as it is.
func TestThePositionOfAHistorianDoesNotGoBack(t *testing.T) {
	w := newScenario(t)
	w.reportHistorian("h", "i", 500)
	w.now += int64(time.Minute)
	w.printed.Reset()
	w.reportHistorian("h", "i", 300)
	want := "refused (conflict): the historian h has said that it has the events before 500, and this one lacks those " +
		"from 300 on: start one of them with another --name;"
	if !strings.HasPrefix(w.printed.String(), want) {
		t.Errorf("%q, want %q", w.printed.String(), want)
	}
	w.expect("h@i500")
	w.reportHistorian("h", "i", 500)
	w.turn(&engine.RemoveHistorian{Name: "h"})
	w.reportHistorian("h", "i", 300)
	w.expect("h@i300")
}

// A historian that is not heard for 72 hours is registered no more, without a further command. A
// report that is not kept counts as heard. The time begins anew with each leader.
func TestASilentHistorianIsRegisteredNoMore(t *testing.T) {
	w := newScenario(t)
	w.reportHistorian("a", "i", 1)
	w.now += int64(time.Hour)
	w.reportHistorian("b", "i", 1)
	w.now += int64(time.Second)
	w.reportHistorian("b", "i", 2)
	w.now += int64(71*time.Hour - 2*time.Second)
	w.turn(nil)
	w.expect("a@i1 b@i1")
	_, wake, _ := w.engine.Turn(w.now, nil, &w.out)
	if due := w.now + int64(time.Second); wake != due {
		t.Errorf("the next turn is at %d, want %d", wake, due)
	}
	w.now = wake
	w.turn(nil)
	w.expect("b@i1")
	w.now += int64(time.Hour)
	w.load()
	w.turn(nil)
	w.expect("b@i1")
	w.now += int64(72*time.Hour) - 1
	w.turn(nil)
	w.expect("b@i1")
	w.now++
	w.turn(nil)
	w.expect("")
}

// The historians and their positions outlive the leader, and so does a removal.
func TestHistoriansOutliveALeader(t *testing.T) {
	w := newScenario(t)
	w.reportHistorian("b", "i", 7)
	w.reportHistorian("a", "", 0)
	w.reportHistorian("c", "j", 9)
	w.turn(&engine.RemoveHistorian{Name: "c"})
	w.load()
	w.turn(nil)
	w.expect("a@0 b@i7")
	w.now += int64(time.Minute)
	w.reportHistorian("a", "i", 2)
	w.turn(&engine.RemoveHistorian{Name: "b"})
	w.load()
	w.expect("a@i2")
}

// A report that cannot be used changes nothing, and its error names the field.
func TestWrongReportsOfHistoriansAreRefused(t *testing.T) {
	w := newScenario(t)
	for i := range plimsoll.MaxHistorians {
		w.reportHistorian(fmt.Sprintf("h%02d", i), "i", 1)
	}
	before := w.historians()
	w.printed.Reset()
	for want, do := range map[string]engine.Operation{
		"refused (exhausted): 16 historians are registered": &engine.ReportHistorian{Name: "another"},
		"refused (invalid): name: is empty":                 &engine.ReportHistorian{},
		`refused (invalid): name: "a b" is not a possible`:  &engine.ReportHistorian{Name: "a b"},
		"refused (invalid): instance_uuid: is 65 bytes": &engine.ReportHistorian{
			Name: "h01", Instance: strings.Repeat("x", 65),
		},
		`refused (not_found): no historian "nobody" is registered`: &engine.RemoveHistorian{Name: "nobody"},
	} {
		w.printed.Reset()
		if w.turn(do); !strings.HasPrefix(w.printed.String(), want) || len(w.printed.String()) > 300 {
			t.Errorf("%+v: %q, want %q", do, w.printed.String(), want)
		}
	}
	if got := w.historians(); strings.Join(got, " ") != strings.Join(before, " ") {
		t.Errorf("registered are %v, want %v", got, before)
	}
	w.now += int64(time.Minute)
	if !w.reportHistorian("h15", "i", 2) { // a full list takes those that it has
		t.Error("a registered historian was not taken")
	}
}
