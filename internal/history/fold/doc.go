// Package fold keeps the whole cluster as its events tell it: jobs with their tasks, nodes and
// queues. It also makes what follows from the events: usage, waits, and counts of tasks.
//
//	f := fold.New() // or fold.Begin(snapshot, at), or fold.Decode(state)
//	for len(events) > 0 {
//		r := f.Apply(events, heads)
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
//   - Each event sets what it is about to a value that does not depend on what was before. What the
//     last event about a thing says is true; where there is none, the list is.
//   - An object that an event adds replaces what is there. One that is removed and unknown is
//     nothing. A job that is unknown, and does something, was gone when the lists were read. It gets
//     a life without an owner, which its removal ends.
//   - An allocation is counted from the beginning of the fold if it was bound before. If the list
//     says that it was bound later, an event will tell it, and counting begins there. If an
//     allocation is taken back that no event has made, it was there at the beginning, and is
//     counted from then on. So nothing is counted twice.
//
// The lists have no events of the past, so a wait is counted only if its beginning is known for
// certain. Where an id went from one job to another between the first event and the list, the
// events of the first job are counted to the other's life.
//
// Behind a gap, lists say what is left. An allocation that was open before and is open now is
// counted through the gap. One that is gone is counted up to the end of the gap, because no one
// knows when it ended; a new one is counted from there.
//
// # Cost
//
// An event costs the same whatever the size of the cluster. Memory is bounded by the objects that
// the cluster has, and by what Apply owes: see MaxResultBytes. AppendState, View and Tasks cost time
// in proportion to the cluster.
package fold
