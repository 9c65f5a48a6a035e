// Package state holds the working state of the cluster in dense mutable tables: jobs with their
// tasks, nodes, policies, and the tree of queues (package queue).
//
// It has one owner, the engine; there are no locks. Each operation checks its input first. Then it
// either refuses it and changes nothing, or it changes the tables, marks rows dirty and appends the
// events of the change (event design, "Event overview"). Take hands out the dirty rows as Changes,
// each once however often it changed in the turn. Sums of nodes and queues are kept up to date and
// never stored; a Loader makes them anew from the stored records, and emits no event but those of
// the very first start.
//
// The state tells the tree of queues what enters, waits, is bound and leaves. It takes from the
// tree which queues have changed and which cause a group is to be told (Tell), and makes records
// and events of that. A group's record holds the cause of its waiting (plimsoll.WaitCause). What
// tasks ask for is made ready for the placement once for all groups that ask for the same (Class).
// A log of changes of nodes (NodeEvents) lets the scheduler look only at nodes that have changed.
//
// Guarantees: no operation and no turn changes more than a batch of the store takes (limits.go).
// Large work is done in parts: Continue creates the tasks of large jobs, stops those of killed jobs
// and drained nodes, gives up those of lost nodes and admits parked jobs; Forget deletes old jobs;
// Tell gives out causes. Each does as much as fits, and the next turn goes on. A load after a crash
// at any instant goes on where the last batch ended. Check holds the invariants of DESIGN.md.
//
// Costs: a transition of a task is O(depth of the tree × log siblings), a read by id O(1), Continue
// linear in what it does. A task takes 120 bytes with no texts, a group 350, a job 220 and its
// specification, a node 420 and its record; for queues and lanes see package queue.
//
// It does not decide where a task goes (package scheduler), reads no clock and does no I/O.
package state
