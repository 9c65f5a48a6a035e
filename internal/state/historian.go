package state

import (
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

const (
	// reportPause is the least time between two kept reports of a historian, in ns. A report
	// between them is answered and not kept: the next one says more.
	reportPause = int64(2 * time.Second)
	// sameReportPause is the least time between two kept reports that say the same, in ns.
	sameReportPause = int64(time.Minute)
)

// historian is a registered historian.
type historian struct {
	plimsoll.Historian
	// due is the time at which it is registered no more, unless it is heard before. A load sets it
	// anew.
	due int64
}

// Historians returns the registered historians by name.
func (s *State) Historians() []plimsoll.Historian {
	list := make([]plimsoll.Historian, len(s.historians))
	for i := range s.historians {
		list[i] = s.historians[i].Historian
	}
	return list
}

// findHistorian returns the place of a historian in State.historians, or the one that it gets.
func (s *State) findHistorian(name string) (at int, found bool) {
	return slices.BinarySearchFunc(s.historians, name, func(h historian, name string) int {
		return strings.Compare(h.Name, name)
	})
}

// ReportHistorian registers a historian, or notes how far it has come. It is done on a full disk
// too: a position that moves on frees more than it takes. A position never goes back: the events
// before it may have gone, and a report of an earlier one is of another history.
func (s *State) ReportHistorian(name, instance string, next uint64) error {
	said := plimsoll.Historian{Name: name, InstanceUUID: instance, Next: next, Heard: s.at}
	if err := said.Validate(); err != nil {
		return err
	}
	at, known := s.findHistorian(name)
	switch {
	case known:
		if err := said.Follows(&s.historians[at].Historian, instance); err != nil {
			return err
		}
	case len(s.historians) >= plimsoll.MaxHistorians:
		return plimsoll.Errorf(plimsoll.CodeExhausted,
			"%d historians are registered, as many as can be; remove one that is gone: plimsoll events historians remove NAME",
			plimsoll.MaxHistorians)
	default:
		s.historians = slices.Insert(s.historians, at, historian{Historian: said})
	}
	h := &s.historians[at]
	h.due = later(s.at, s.cfg.KeepHistorian)
	since, same := s.at-h.Heard, h.InstanceUUID == instance && h.Next == next
	anew := h.InstanceUUID != instance // it lacks other events than the kept report says
	if !known || anew || since >= sameReportPause || since >= reportPause && !same {
		h.Historian = said
		s.markHistorian(&said)
	}
	return nil
}

// RemoveHistorian ends the registration of a historian.
func (s *State) RemoveHistorian(name string) error {
	at, known := s.findHistorian(name)
	if !known {
		return plimsoll.Errorf(plimsoll.CodeNotFound,
			"no historian %.*q is registered; plimsoll events historians lists them", plimsoll.MaxID, name)
	}
	s.dropHistorian(at)
	return nil
}

func (s *State) dropHistorian(at int) {
	gone := s.historians[at].Historian
	s.historians = slices.Delete(s.historians, at, at+1)
	s.markHistorian(&gone)
}

// markHistorian marks the record of a historian dirty. One that is not registered any more is
// deleted.
func (s *State) markHistorian(h *plimsoll.Historian) {
	s.dirty.historians = append(s.dirty.historians, h.Name)
	s.dirty.bytes += len(h.Name) + size.Of(h)
}

// mustForgetHistorian reports whether a historian was not heard for too long.
func (s *State) mustForgetHistorian() bool {
	due := s.historianDue()
	return due != 0 && due <= s.at
}

// forgetHistorians ends the registrations of those who were not heard for too long, as far as the
// budget goes.
func (s *State) forgetHistorians(budget Budget) {
	for i := len(s.historians) - 1; i >= 0 && !s.Over(budget); i-- {
		if s.historians[i].due <= s.at {
			s.dropHistorian(i)
		}
	}
}

// historianDue returns the time at which the next registration ends; 0: there is none.
func (s *State) historianDue() (due int64) {
	for i := range s.historians {
		if h := &s.historians[i]; due == 0 || h.due < due {
			due = h.due
		}
	}
	return due
}

// takeHistorians hands out the changed and the deleted historians, each once.
func (s *State) takeHistorians(c *Changes) {
	for _, name := range unique(s.dirty.historians) {
		if at, known := s.findHistorian(name); known {
			c.Historians = append(c.Historians, s.historians[at].Historian)
		} else {
			c.DeletedHistorians = append(c.DeletedHistorians, name)
		}
	}
}

// loadHistorian takes over a stored registration. It lasts for as long as a new one: while nobody
// led, nobody could be heard.
func (s *State) loadHistorian(stored *plimsoll.Historian) error {
	if err := stored.Validate(); err != nil {
		return corrupt("a historian, which cannot be used: %v", err)
	}
	at, known := s.findHistorian(stored.Name)
	if known {
		return corrupt("the historian %q twice", stored.Name)
	}
	s.historians = slices.Insert(s.historians, at, historian{*stored, later(s.at, s.cfg.KeepHistorian)})
	return nil
}
