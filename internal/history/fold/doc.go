// Package fold keeps the whole cluster as its events tell it: jobs with their tasks, nodes and
// queues. It also makes what follows from the events: usage, waits, and counts of tasks.
//
//	f := fold.New() // or fold.Begin(snapshot, at), or fold.Decode(state)
//	for len(events) > 0 {
//		r := f.Apply(events)
//		write(events[:r.Taken], r.Objects, r.Jobs, r.Rollups)
//		events = events[r.Taken:]
//	}
//
// A Fold belongs to one goroutine. It reads no clock: time is the newest time of all events and
// never goes back. So usage does not depend on how events are divided into calls, nor on a leader
// with a wrong clock.
//
// # What is counted
//
// The usage of an allocation is its resources times the time from APP_ALLOC to the event that takes
// it back. A wait goes from APP_REQUEST to the first APP_ALLOC behind it. The pause before a later
// attempt is no wait: part of it is the retry policy's, and no event says which. A task has ended
// when it is wanted no more, and has failed unless its last attempt succeeded. So a task that is
// cancelled while it waits counts as failed.
//
// Allocations that are open are counted too. A call of Apply counts the OpenEach groups of tasks
// that were counted longest ago, and all of which the last count is OpenEvery ago. When nothing
// happens, nothing is counted.
//
// # A late start, and gaps
//
// A Snapshot is made of lists, which need not show one instant. They are read after the id from
// which events are applied. So the fold meets events that the lists show already, and it comes to
// the state of a fold that knows all events. This is why:
//
//   - An event sets a thing to a value that does not depend on the one before. So the last event
//     about a thing is right, and without any the list is.
//   - An object that is added replaces the one that is there. Events of nodes and queues that are
//     unknown, because they were gone when the lists were read, do nothing. Such a job gets a life
//     without an owner, which ends with its removal.
//   - An allocation of a list that was bound before the fold begins is counted from the beginning.
//     One that was bound later is counted when its event comes. If the leader's clock was wrong,
//     and none comes, it is counted once time has passed that instant.
//   - An allocation that ends, and was made by no event, was there when the fold began. It is
//     counted from then on. So nothing is counted twice, and nothing is missed.
//
// The lists have no events of the past, so a wait is counted only if its beginning is known for
// certain. An id may go from one job to another between the first event and the list. Then the
// events of the first job go to the life of the other.
//
// Behind a gap, lists say what is left. An allocation that was open before and is open now is
// counted through the gap. One that is gone is counted up to the end of the gap, because no one
// knows when it ended; a new one is counted from there.
//
// # Cost
//
// An event costs the same whatever the size of the cluster. Memory is bounded by the objects that
// the cluster has, and by the usage that Apply owes: see MaxResultBytes. The cost of AppendState,
// View and Tasks is in proportion to the cluster.
package fold
