package state

import "github.com/plimsoll-dev/plimsoll"

// tellNewJob tells resource managers of a job that was taken in.
func (s *State) tellNewJob(j *Job) {
	if s.eventSettings.TellingRequests() {
		s.addRequest(j, plimsoll.CauseNewJob, plimsoll.Event{Message: "it is new in " + j.Queue.Path})
	}
}

// tellQueueFull tells resource managers when a group begins to wait for room in a queue, or for a
// limit of its owner there. It tells nothing of other causes. The event names the task of the group
// that is next, and stands for those behind it: they ask for the same. An event for each would drop
// all others from the store.
func (s *State) tellQueueFull(g *Group, cause *plimsoll.WaitCause) {
	already := g.Wait.Code == cause.Code && g.Wait.Queue == cause.Queue && g.Wait.UserOrGroup == cause.UserOrGroup
	full := cause.Code == plimsoll.WaitQueueMax || cause.Code == plimsoll.WaitUserMax ||
		cause.Code == plimsoll.WaitGroupMax
	if full && !already && g.lane.Ready() > 0 && s.eventSettings.TellingRequests() {
		s.addRequest(g.Job, plimsoll.CauseQueueFull, plimsoll.Event{
			Object: g.Next().Task().ID, Resources: g.Spec.Resources, Message: cause.String(),
		})
	}
}

// tellAllocated tells resource managers that a task got a node.
func (s *State) tellAllocated(r Ref, n *Node) {
	if s.eventSettings.TellingRequests() {
		s.addRequest(r.Group.Job, plimsoll.CauseAllocated, plimsoll.Event{
			Object: r.Task().ID, Resources: r.Group.Spec.Resources, Message: "it got node " + n.ID,
		})
	}
}

// addRequest makes an event for resource managers (event design, "SHIM events"). It is no event of
// the log: the collection of those may be off. Its callers have marked a record dirty, or are about
// to, so the budget of the turn bounds these events too.
func (s *State) addRequest(j *Job, cause plimsoll.RequestCause, e plimsoll.Event) {
	e.Type, e.Change, e.Detail = plimsoll.EventRequest, plimsoll.ChangeNone, plimsoll.DetailNone
	e.Time, e.Reference = s.at, j.Spec.ID
	s.dirty.requests = append(s.dirty.requests, plimsoll.RequestEvent{Cause: cause, Owner: j.Spec.Owner, Event: e})
}
