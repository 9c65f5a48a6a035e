// Package trace makes a workload for package simulate from a history: the jobs that came with the
// number and size of their tasks, the length and end of each attempt, and the nodes that took
// tasks.
//
//	t, err := trace.Read(ctx, reader, trace.Query{Since: since})
//	c := simulate.Config{Queues: t.Queues, Changes: t.Changes, Until: t.Until - t.From}
//	report, _, err := simulate.Run(&c, t.Workload)
//
// A window of time is read: first the state at its beginning (history.Reader.At), then the events
// in it. Tasks that were there already come at the beginning: those that ran first, then those that
// waited. Times of the workload are from the beginning of the window.
//
// An attempt runs as long as it held its node then. An attempt that ended with its node is left
// out, because in the simulation the node is lost too, and the attempt begins anew. A task that was
// killed, or had not ended, runs until it is killed, or until the end. Behind a gap the state is
// read again, and all that happened in it is taken as if it had happened at its end.
//
// Events do not tell priorities, constraints, preferences and pauses between attempts. Neither do
// they tell the labels of nodes, nor settings of a queue file other than resources. Trace.Counts
// and the notes of the workload say what is not known.
//
// The package starts nothing, and only reads. The same history gives the same trace. Memory grows
// with the window, by about 150 bytes for a task and 50 for an attempt. Beyond MaxTasks,
// MaxAttempts or MaxStates Read fails with CodeExhausted. The caller is the command plimsoll
// simulate.
package trace
