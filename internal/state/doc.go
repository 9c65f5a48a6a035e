// Package state holds the working state of the cluster in dense mutable tables: jobs with their
// tasks, nodes, policies, and the tree of queues (package queue).
//
// The engine owns the State and is its only caller; there are no locks. A turn is:
//
//	s.Begin(now, revision)
//	job, err := s.Submit(spec, false) // and other operations
//	s.Bind(ref, slot)           // package scheduler decides on the slot
//	s.RecordCauses(budget)      // why the other tasks wait
//	s.Take(&changes)            // the batch of the turn
//
// Each operation checks its input first. A wrong input is refused and changes nothing. Otherwise
// the operation changes the tables, marks rows dirty and appends the events of the change (event
// design, "Event overview"). Take hands out the dirty rows as Changes, each row once however often
// it changed in the turn. Sums of nodes and queues are kept up to date and never stored. A Loader
// adds them up again from the stored records; it emits events only at the very first start. Events
// for resource managers are no events of the log, and are handed out apart (requests.go).
//
// Each job and task that enters, waits, is bound or leaves is reported to the tree of queues. The
// tree answers with the queues that have changed and the groups whose cause of waiting has changed
// (RecordCauses); the state makes records and events of both. A group's record holds the cause of
// its waiting (plimsoll.WaitCause). Groups with equal requests share a Class, whose request is
// prepared for the placement once. A log of changes of nodes (NodeEvents) lets the scheduler look
// only at nodes that have changed.
//
// Guarantees: no operation and no turn changes more than a batch of the store takes (limits.go).
// Large work is done in parts: Continue creates the tasks of large jobs, stops those of killed jobs
// and drained nodes, gives up those of lost nodes and admits parked jobs. Forget deletes old jobs,
// and RecordCauses records causes. Each does as much as fits, and the next turn goes on. A load
// after a crash at any instant goes on where the last batch ended. Check tests the invariants of
// DESIGN.md.
//
// Costs: a transition of a task is O(depth of the tree × log siblings). A read by id is O(1), and
// Continue is linear in the rows that it changes. A task takes 120 bytes without texts, a group
// 350, a job 220 and its specification, a node 420 and its record; for queues and lanes see package
// queue.
//
// Package scheduler decides where a task goes. The state reads no clock and does no I/O.
package state
