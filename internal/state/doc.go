// Package state holds the working state of the cluster in dense mutable tables: jobs with their tasks, nodes and queues.
//
// It has one owner, the engine; there are no locks. Each operation checks its input first, then either refuses it and changes
// nothing, or changes the tables, records what became dirty and appends the events of the change (event design, "Event
// overview"). Take hands out what is dirty as Changes, each object once however often it changed in the turn. Totals of nodes
// and queues are kept up to date and never stored; Load and EndLoad rebuild them from the stored records and emit no event.
//
// What may wait is kept so that waiting costs nothing: the pending tasks of a leaf are grouped by what they ask for (Shape),
// each shape in the order of submission. A shape that found no room is blocked with a reason until a node has freed room, a
// queue has shrunk or got other limits, or the reason is another one; only nodes that changed are looked at. DESIGN.md says more.
//
// Large work is done in parts, so that a turn stays within the limits of the store: Continue creates the tasks of large jobs,
// stops those of killed jobs and drained nodes and gives up those of lost nodes, Forget deletes old jobs, as much as fits.
//
// Costs: a task transition is O(depth of the queue tree); reading is O(1) by id; Continue is linear in what it does. A task
// costs about 200 bytes, a node 700 and its tasks, a queue 600.
//
// It does not decide where a task goes (package scheduler), reads no clock and does no I/O.
package state
