package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// EventSettings returns the settings of the events.
func (s *State) EventSettings() plimsoll.EventSettings { return s.eventSettings }

// SetEventSettings changes settings of the events, all of them or none. It is done on a full disk
// too: the record replaces its former one, and fewer events leave more room.
func (s *State) SetEventSettings(values map[string]string) error {
	wanted := s.eventSettings
	if err := wanted.Set(values); err != nil {
		return err
	}
	s.replaceEventSettings(&wanted)
	return nil
}

func (s *State) replaceEventSettings(wanted *plimsoll.EventSettings) {
	was := s.eventSettings
	if wanted.Equal(&was) {
		return
	}
	s.eventSettings = *wanted
	s.dirty.eventSettings = true
	s.dirty.eventsAnew = s.dirty.eventsAnew || wanted.Collecting() && !was.Collecting()
	s.dirty.bytes += size.Of(wanted)
}

// loadEventSettings takes over the stored settings of the events.
func (s *State) loadEventSettings(stored *plimsoll.EventSettings) {
	if stored != nil {
		s.eventSettings = *stored
	}
}

// giveEventSettings sets what the flags or the file of this leader give, see
// plimsoll.EventSettings.Give.
func (s *State) giveEventSettings() error {
	wanted := s.eventSettings
	if err := wanted.Give(s.cfg.Events); err != nil {
		return err
	}
	s.replaceEventSettings(&wanted)
	return nil
}
