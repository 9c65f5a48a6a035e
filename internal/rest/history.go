package rest

import (
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// applicationsThen is an element of /history/apps: the applications that ran when a minute began.
type applicationsThen struct {
	Timestamp         int64  `json:"timestamp"`
	TotalApplications string `json:"totalApplications"`
}

// containersThen is an element of /history/containers: the allocations that there were.
type containersThen struct {
	Timestamp       int64  `json:"timestamp"`
	TotalContainers string `json:"totalContainers"`
}

func (a *reading) applicationHistory() error {
	return a.eachMinute(func(at int64, c wire.Count) error {
		return a.element(applicationsThen{at, strconv.Itoa(int(c.Jobs))})
	})
}

func (a *reading) containerHistory() error {
	return a.eachMinute(func(at int64, c wire.Count) error {
		return a.element(containersThen{at, strconv.Itoa(int(c.Tasks))})
	})
}

// eachMinute makes the list of the minutes of the last day that are known, with the counts that
// each began with. Behind the last revision nothing has changed.
func (a *reading) eachMinute(element func(at int64, c wire.Count) error) error {
	samples, err := a.records.Counts()
	if err != nil {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "%v", err)
	}
	present, err := a.present()
	if err != nil {
		return err
	}
	changed := wire.MinuteOf(a.records.Time())
	now := max(wire.MinuteOf(a.now.UnixNano()), changed)
	a.begin()
	defer a.end()
	for minute := now - wire.CountedMinutes + 1; minute <= now; minute++ {
		for len(samples) > 1 && samples[1].Minute <= minute {
			samples = samples[1:]
		}
		count := present
		if minute <= changed {
			if len(samples) == 0 || samples[0].Minute > minute {
				continue // before the first one
			}
			count = samples[0]
		}
		if err := element(minute*int64(time.Minute), count); err != nil {
			return err
		}
	}
	return nil
}

// present counts what there is.
func (a *reading) present() (c wire.Count, err error) {
	for _, state := range []plimsoll.JobState{plimsoll.JobStarting, plimsoll.JobRunning} {
		c.Jobs += int32(a.records.JobRange(replica.JobCriteria{States: []plimsoll.JobState{state}}).Len())
	}
	if data, has := a.records.Get(wire.KindQueueStatus, plimsoll.RootQueue); has {
		root, err := wire.DecodeQueueStatus(data)
		if err != nil {
			return c, undecodable(plimsoll.RootQueue, err)
		}
		c.Tasks = root.Running
	}
	return c, nil
}
