package state

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

func refusable(id, queue string) *plimsoll.JobSpec {
	return &plimsoll.JobSpec{ID: id, Queue: queue, Groups: []plimsoll.GroupSpec{
		{Name: "g", Count: 1, Command: []string{"true"}},
	}}
}

// turnOf makes a turn of a state and returns its changes.
func turnOf(t *testing.T, s *State, revision uint64, do func()) *Changes {
	t.Helper()
	var c Changes
	s.Begin(int64(revision)*second, revision)
	s.Forget(s.Budget())
	do()
	s.Take(&c)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return &c
}

func loadedState(t *testing.T, cfg Config) *State {
	t.Helper()
	s, err := NewLoader(cfg, plimsoll.DefaultQueues()).End(1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// At most 1,000 rejected jobs are kept, and the oldest go first. A job that is refused again is the
// newest.
func TestRejectedJobsAreBoundedByNumber(t *testing.T) {
	s := loadedState(t, Config{})
	turnOf(t, s, 1, func() {
		for i := range maxRejected {
			if _, err := s.Submit(refusable(fmt.Sprintf("j%d", i), "root.nope"), false); err == nil {
				t.Fatal("it was taken in")
			}
		}
		_, _ = s.Submit(refusable("j0", "root.nope"), false) // refused again
		_, _ = s.Submit(refusable("late", "root.nope"), false)
	})
	if !s.Behind() {
		t.Error("there are too many, and no turn follows")
	}
	c := turnOf(t, s, 2, func() {})
	if len(c.DeletedJobs) != 1 || c.DeletedJobs[0] != "j1" || s.rejected.byID["j0"] == nil || s.Behind() {
		t.Errorf("%v were forgotten", c.DeletedJobs)
	}
}

// They take at most 16 MiB of memory.
func TestRejectedJobsAreBoundedByBytes(t *testing.T) {
	s := loadedState(t, Config{})
	for i := range uint64(800) {
		spec := refusable(fmt.Sprintf("j%d", i), "root.nope")
		spec.Groups[0].Env = map[string]string{"LONG": strings.Repeat("x", 30<<10)}
		turnOf(t, s, i+1, func() { _, _ = s.Submit(spec, false) })
	}
	turnOf(t, s, 801, func() {})
	if n := len(s.rejected.byID); s.rejected.memory > maxRejectedBytes || n < 100 || n > 550 {
		t.Errorf("%d jobs with %d bytes are kept", n, s.rejected.memory)
	}
}

// A malformed job, one whose id is in use, and a refusal that may pass by itself leave nothing.
func TestOnlyJobsThatAreRefusedForGoodAreKept(t *testing.T) {
	s := loadedState(t, Config{MaxJobs: 1})
	turnOf(t, s, 1, func() {
		malformed := refusable("malformed", "root.nope")
		malformed.Groups = nil
		_, _ = s.Submit(malformed, false)
		if _, err := s.Submit(refusable("first", "root.default"), false); err != nil {
			t.Fatal(err)
		}
		_, _ = s.Submit(refusable("first", "root.nope"), false)
		_, _ = s.Submit(refusable("second", "root.default"), false) // there may be one job
		s.SetShortage("the disk is full")
		_, _ = s.Submit(refusable("third", "root.nope"), false)
		s.SetShortage("")
	})
	if n := len(s.rejected.byID); n != 0 {
		t.Errorf("%d jobs are kept: %v", n, s.rejected.byID)
	}
}

// A submit takes the place of a rejected job with its id, also without replace, and in one turn.
// The records are put, and not deleted too.
func TestASubmitTakesThePlaceOfARejectedJob(t *testing.T) {
	s := loadedState(t, Config{})
	turnOf(t, s, 1, func() { _, _ = s.Submit(refusable("j", "root.nope"), false) })
	c := turnOf(t, s, 2, func() {
		_, _ = s.Submit(refusable("j", "root"), false)
		if _, err := s.Submit(refusable("j", "root.default"), false); err != nil {
			t.Error(err)
		}
	})
	if len(c.DeletedJobs) != 0 || len(c.JobStatuses) != 1 || c.JobStatuses[0].State != plimsoll.JobNew ||
		len(c.JobSpecs) != 1 || c.JobSpecs[0].Queue != "root.default" {
		t.Errorf("the turn puts %+v and deletes %v", c.JobStatuses, c.DeletedJobs)
	}
}

// Deleted in the turn in which it was refused, a job leaves no record; a uid must be its own.
func TestARejectedJobIsDeleted(t *testing.T) {
	s := loadedState(t, Config{})
	c := turnOf(t, s, 1, func() {
		_, _ = s.Submit(refusable("j", "root.nope"), false)
		if err := s.DeleteJob("j", plimsoll.MakeUID(7, 7)); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
			t.Errorf("with another uid: %v", err)
		}
		if err := s.DeleteJob("j", plimsoll.UID{}); err != nil {
			t.Error(err)
		}
	})
	if len(c.JobStatuses)+len(c.JobSpecs) != 0 || len(s.rejected.byID) != 0 {
		t.Errorf("the turn puts %+v", c.JobStatuses)
	}
}
