package qos

import (
	"fmt"
	"time"
)

// reading is the time at which a metric was measured.
type reading struct {
	at  int64
	own bool // the metric has its own time; otherwise it was measured with the sample, so it is new
}

func (s *Snapshot) reading(metric string) reading {
	at, own := s.Times[metric]
	if !own {
		at = s.At
	}
	return reading{min(at, s.At), own}
}

// countReading counts a rule's reading, if it is newer than the last counted one. Only in that plan
// may the reading trigger or restore the rule, and only then is anything taken for it. Until a
// newer reading comes, the rule stays as it is.
func (r *round) countReading(u *run, value int64) {
	st := u.state
	u.reading = r.reading(u.Metric)
	if r.isNewer(u.reading, st.Read) {
		if u.reading.own {
			st.Read = u.reading.at
		}
		u.count(value, r.now)
		return
	}
	u.counted, u.fires = true, st.Active && st.Below == 0
	if st.Active || st.Above > 0 {
		age := time.Duration(r.now - u.reading.at).Round(time.Second)
		u.report.Note = fmt.Sprintf("waits for a newer reading; this one is %v old", age)
	}
}

// paceUnmeasured lets a rule whose metric is missing act once in each Options.Stale. Without a
// value nothing shows the effect of the last step, so the time between two steps takes its place.
func (r *round) paceUnmeasured(u *run) {
	st, stale := u.state, int64(r.p.opt.Stale)
	u.reading = reading{st.Missing + (r.now-st.Missing)/stale*stale, true}
	if !u.actsUnmeasured {
		return
	}
	if !r.isNewer(u.reading, st.Read) {
		u.actsUnmeasured, u.counted = false, true
		return
	}
	st.Read = u.reading.at
}

// isNewer reports whether a reading is newer than the last one.
func (r *round) isNewer(x reading, last int64) bool { return r.back || !x.own || x.at > last }

// hidden reports whether a change made at an instant does not show yet in a reading.
func (r *round) hidden(done, reading int64) bool {
	return !r.back && !shows(done, reading, r.p.opt.Lag)
}

// oldest returns the time of the oldest value that a rule uses.
func (r *round) oldest() int64 {
	oldest := r.At
	for i := range r.runs {
		if u := &r.runs[i]; u.report.Known {
			oldest = min(oldest, u.reading.at)
		}
	}
	return oldest
}

// markGiven records, for each rule, the reading by which something was given back.
func (r *round) markGiven() {
	for i := range r.runs {
		if u := &r.runs[i]; u.gives && u.reading.own {
			u.state.Gave = u.reading.at
		}
	}
}
