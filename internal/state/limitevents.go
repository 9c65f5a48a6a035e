package state

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// limitName is whom a limit of a queue is for: a user, or a group of users.
type limitName struct {
	group bool
	name  string // "*" is the wildcard
}

// limitsByName returns the limits that a queue states, by whom they are for, and these in the order
// in which they are stated.
func limitsByName(stated []plimsoll.QueueLimit) (order []limitName, limits map[limitName]*plimsoll.QueueLimit) {
	limits = map[limitName]*plimsoll.QueueLimit{}
	add := func(who limitName, l *plimsoll.QueueLimit) {
		if limits[who] == nil {
			order = append(order, who)
			limits[who] = l
		}
	}
	for i := range stated {
		for _, name := range stated[i].Users {
			add(limitName{false, name}, &stated[i])
		}
		for _, name := range stated[i].Groups {
			add(limitName{true, name}, &stated[i])
		}
	}
	return order, limits
}

// limitEvents returns the events by which the limits of a queue become others: first those that are
// gone, then those that are new or changed.
func limitEvents(path string, old, stated []plimsoll.QueueLimit) (events []plimsoll.Event) {
	if len(old) == 0 && len(stated) == 0 {
		return nil
	}
	gone, had := limitsByName(old)
	order, limits := limitsByName(stated)
	for _, who := range gone {
		if limits[who] == nil {
			events = append(events, plimsoll.Event{
				Type: plimsoll.EventUserGroup, Change: plimsoll.ChangeRemove, Detail: who.detail(), Object: who.name,
				Reference: path,
			})
		}
	}
	for _, who := range order {
		l, was := limits[who], had[who]
		if was != nil && maps.Equal(was.Max, l.Max) && was.MaxJobs == l.MaxJobs {
			continue
		}
		events = append(events, plimsoll.Event{
			Type: plimsoll.EventUserGroup, Change: plimsoll.ChangeSet, Detail: who.detail(), Object: who.name,
			Resources: l.Max, Message: plimsoll.LimitText(path, l.MaxJobs),
		})
	}
	return events
}

func (w limitName) detail() plimsoll.ChangeDetail {
	if w.group {
		return plimsoll.GroupLimit
	}
	return plimsoll.UserLimit
}

// limitEventBytes bounds the bytes of limitEvents.
func limitEventBytes(path string, old, stated []plimsoll.QueueLimit) (sum int) {
	for _, e := range limitEvents(path, old, stated) {
		sum += size.Event(e.Object, e.Reference, e.Message) + size.Of(e.Resources)
	}
	return sum
}

// tellLimits emits the events by which the limits of a queue become others.
func (s *State) tellLimits(path string, old, stated []plimsoll.QueueLimit) {
	for _, e := range limitEvents(path, old, stated) {
		s.dirty.bytes += size.Of(e.Resources)
		s.emit(e)
	}
}

// statedLimits returns the limits that each queue states.
func (s *State) statedLimits() map[*queue.Queue][]plimsoll.QueueLimit {
	limits := map[*queue.Queue][]plimsoll.QueueLimit{}
	s.tree.Root.Walk(func(q *queue.Queue) { limits[q] = q.Stated().Limits })
	return limits
}

// tellNewLimits emits the events of the limits that a new configuration has changed, and lets
// Continue tell for which jobs others hold now. was has the limits before. Those of new queues are
// told with the queues, and those of a queue that is gone are gone with it.
func (s *State) tellNewLimits(was map[*queue.Queue][]plimsoll.QueueLimit) {
	s.tree.Root.Walk(func(q *queue.Queue) {
		if old, known := was[q]; known {
			s.tellLimits(q.Path, old, q.Stated().Limits)
		}
	})
	for _, j := range s.accounts.rows {
		if j != nil {
			s.checkLimited(j)
		}
	}
}

// checkLimited lets Continue tell whose limits hold for a live job, if that is not what the events
// say.
func (s *State) checkLimited(j *Job) {
	if j.account.LimitedBy() != j.limited && !j.relimiting {
		j.relimiting = true
		s.relimiting = append(s.relimiting, j)
	}
}

// relimit tells whose limits hold for a job now, as far as the budget goes, and reports whether it
// is done. The use of a job goes over to another group at once.
func (s *State) relimit(j *Job, budget Budget) bool {
	if s.Over(budget) {
		return false
	}
	j.relimiting = false
	s.setLimited(j, j.account.LimitedBy()) // of a job that has left its queue: zero
	return true
}

// setLimited tells whose limits hold for a job.
func (s *State) setLimited(j *Job, now queue.LimitedBy) {
	was := j.limited
	if was == now {
		return
	}
	use := j.use()
	s.dirty.bytes += 4 * size.Of(use)
	if was.User && !now.User {
		s.emitUse(j, plimsoll.ChangeRemove, plimsoll.UserResource, j.Spec.Owner, use)
	}
	if was.Group != now.Group {
		s.emitUse(j, plimsoll.ChangeRemove, plimsoll.GroupResource, was.Group, use)
		s.emitLink(j, plimsoll.ChangeRemove, was.Group)
		s.emitLink(j, plimsoll.ChangeAdd, now.Group)
		s.emitUse(j, plimsoll.ChangeAdd, plimsoll.GroupResource, now.Group, use)
	}
	if now.User && !was.User {
		s.emitUse(j, plimsoll.ChangeAdd, plimsoll.UserResource, j.Spec.Owner, use)
	}
	j.limited = now
	s.text(now.Group)
	s.markStatus(j, true)
}

// use returns what the tasks of the job that are on nodes use; nil if there are none.
func (j *Job) use() plimsoll.Resources {
	var sum plimsoll.Resources
	for i := range j.Groups {
		g := &j.Groups[i]
		n := int64(g.Counts.OnNodes())
		if n == 0 {
			continue
		}
		if sum == nil {
			sum = plimsoll.Resources{}
		}
		for _, name := range g.Spec.Resources.Names() {
			sum[name] += n * g.Spec.Resources[name]
		}
	}
	return sum
}

// tellUse tells a change of the use of those whose limits hold for a job, by one task of it. The
// resources of a task are counted with its job's status.
func (s *State) tellUse(j *Job, change plimsoll.ChangeType, r plimsoll.Resources) {
	if j.limited.User {
		s.emitUse(j, change, plimsoll.UserResource, j.Spec.Owner, r)
	}
	s.emitUse(j, change, plimsoll.GroupResource, j.limited.Group, r)
}

// emitUse emits a change of the use of a user or group by a job. It emits nothing if nothing is
// used, or if there is nobody with the name.
func (s *State) emitUse(
	j *Job, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, who string, r plimsoll.Resources,
) {
	if who != "" && len(r) > 0 {
		s.emit(plimsoll.Event{
			Type: plimsoll.EventUserGroup, Change: change, Detail: detail, Object: who, Reference: j.Queue.Path,
			Resources: r,
		})
	}
}

// emitLink emits that the limits of a group hold for a job, or do no longer; nothing if there is no
// group.
func (s *State) emitLink(j *Job, change plimsoll.ChangeType, group string) {
	if group != "" {
		s.emit(plimsoll.Event{
			Type: plimsoll.EventUserGroup, Change: change, Detail: plimsoll.GroupLink, Object: group,
			Reference: j.Spec.ID,
		})
	}
}

// checkLimits reports a live job for which others' limits hold than the events say, although no
// work is left over for it.
func (s *State) checkLimits() error {
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		if listed := slices.Contains(s.relimiting, j); listed != j.relimiting {
			return fmt.Errorf("job %s: is to be told its limits: %t, but listed: %t", id, j.relimiting, listed)
		}
		if now := j.account.LimitedBy(); now != j.limited && !j.relimiting {
			return fmt.Errorf("job %s: limits hold by %+v, but it was told %+v", id, now, j.limited)
		}
	}
	return nil
}
