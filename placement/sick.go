package placement

import "slices"

// sickFor returns for how many seconds two failures keep a server out.
func (s *Settings) sickFor() int64 {
	if s.SickFor == 0 {
		return DefaultSickFor
	}
	return s.SickFor
}

// SickUntil returns the Unix time at which the filter sick-servers accepts a server again. The time
// is 0 if the two newest outcomes on the server are not both failures, or the chain has no such
// filter.
func (c *Chain) SickUntil(f *Fleet, slot int32) int64 {
	if f.rows[slot].flags&sick == 0 ||
		!slices.ContainsFunc(c.stages, func(s Stage) bool { return s.Name == "sick-servers" }) {
		return 0
	}
	return f.loads[slot].last[1].at + c.Settings.sickFor()
}

// Recover forgets the outcomes on a server, after somebody has repaired it.
func (f *Fleet) Recover(slot int32) {
	f.changing(slot)
	f.rows[slot].flags &^= sick
	f.loads[slot].last = [2]outcome{}
}
