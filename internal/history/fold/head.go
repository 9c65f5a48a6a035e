package fold

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// headOf returns what a job tells that no event has.
func headOf(is *plimsoll.Job) *history.Job {
	return &history.Job{
		UID: is.Status.UID, Owner: is.Status.Owner, Queue: is.Status.Queue, Labels: is.Spec.Labels,
		Submitted: is.Status.Submitted,
	}
}

// Learn gives a life that is known the head that could not be learned when it was taken in. Usage
// that was told before stays with the group of a job without a head. It reports whether the life is
// known. The next call of Apply tells the job. Heads of a replay have the head at once: the usage
// is the same then, but for calls that were full.
func (f *Fold) Learn(head *history.Job) bool {
	j := f.jobs[head.ID]
	if j == nil || j.Life != head.Life {
		return false
	}
	f.learn(j, head)
	f.owe(j)
	return true
}

// Headless returns the lives without a head, by id.
func (f *Fold) Headless() []history.Job {
	var list []history.Job
	for _, id := range sortedKeys(f.jobs) {
		if !f.jobs[id].headed {
			list = append(list, f.jobs[id].Job)
		}
	}
	return list
}
