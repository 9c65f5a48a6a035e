// Package nodeqos keeps one node at its waterlines: every second it measures the machine and the
// control groups of its tasks, asks package qos what that calls for, does it, and says what it did.
//
// A sample goes like this. The list of tasks is taken, groups that are new are opened, and
// everything is swept (package sample). That and what user-defined metrics said last becomes a
// qos.Snapshot; qos.Plan makes steps of it. All steps are entered in the ledger, the ledger is
// written to Dir/qos/ledger.json, and then they are done in order: quota, weight, freezer at once;
// stopping tasks and reclaiming memory beside the loop, since they take their time. What the node
// says of itself (closed or open, what it lends, what happened) goes to Deps.Report.
//
// It owns, while Run runs: the loop's goroutine, one a user-defined metric and 8 more while it
// measures tasks, two that wait for pressure if some rule asks for it, at most 64 that stop tasks
// or reclaim memory; the open files of Sampler and Controls; and the directory Dir/qos. It does NOT
// decide whom to act on (qos), know the coordinator, or start and stop tasks (Deps.Evict).
//
// Guarantees:
//   - Nothing local waits for the network: Deps.Report must not block; Deps.Evict, metrics and their
//     Actions are called beside the loop.
//   - What is taken is on record before it is taken. After a crash it is given back by the record; what is below its specification without a record (the record
//     was lost, or was never written) is given back too, and what is frozen without one is thawed at once.
//   - When Run ends, what it froze is thawed; the rest stays as it is, and the next Run goes on. If the process is killed instead, frozen tasks stay frozen until the
//     next Run, which thaws them when their time is up.
//   - A frozen task that is to be stopped, by whomever, is thawed first.
//   - A limit of a metric's own is on record too, is set again by the next Run, and is given back.
//   - A group that has vanished is no error. What the kernel refuses is an event, and the task is left alone for a while.
//   - What others write to a group is seen at the latest at its eighth sample, and always before it is acted on.
//
// Each guaranteed task with a quota gets a burst once, as large as its quota: what it leaves of one
// period it may use in the next. What a user-defined metric tells is at most two of its intervals
// old, else it is missing.
//
// Callbacks of Deps are called while a sample is under way, so they must not call Status.
//
// Cost: a sweep, a read of an eighth of the groups, and a look at each rule: 5 to 10 µs a task, so
// a tenth of a percent of a core for 200 tasks, and less than a MiB of heap (BenchmarkLoop). Memory
// is that of the sweep, and the last snapshot and plan.
//
// A Go program runs a Loop for tasks of its own with metrics and actions of its own:
//
//	deps := nodeqos.Deps{Tasks: tasks, Evict: evict}
//	loop, err := nodeqos.New(nodeqos.Config{Dir: dir, Metrics: metrics}, deps)
//	if err != nil {
//		return err
//	}
//	loop.SetPolicies(policies)
//	return loop.Run(ctx)
//
// Metric.Measure measures; Sort, Limit, Throttle and Restore of qos.Metric plan; Metric.Actions do
// what is planned where quotas of control groups and Deps.Evict do not fit. OpenSubtree gives the
// loop control groups, without which it needs no privileges. examples/qos-loop is such a program.
//
// The design is crane's agent with what its peers do better; qos/DESIGN.md says what.
// internal/agent owns the Loop of a node.
package nodeqos
