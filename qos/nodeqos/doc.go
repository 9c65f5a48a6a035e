// Package nodeqos keeps one node at its waterlines. Every second it measures the machine and the
// control groups of its tasks, lets package qos plan, carries the plan out and reports it.
//
// A sample goes like this. The list of tasks is taken, new groups are opened, and everything is
// swept (package sample). The sweep and the latest values of user-defined metrics become a
// qos.Snapshot, of which qos.Plan makes steps. All steps are entered in the ledger, the ledger is
// written to Dir/qos/ledger.json, and then they are done in order. Quotas, weights and freezing are
// changed at once. Tasks are stopped and memory is reclaimed in the background, since that takes
// its time. The node's condition (closed or open, its offers, its events) goes to Deps.Report.
//
// While Run runs, the package owns:
//   - the loop's goroutine, one for each user-defined metric, and 8 more while it measures tasks;
//   - two goroutines that wait for pressure if some rule asks for it, and at most 64 that stop
//     tasks or reclaim memory;
//   - the open files of Sampler and Controls, and the directory Dir/qos.
//
// It does NOT decide whom to act on (qos), know the coordinator, or start and stop tasks
// (Deps.Evict).
//
// Guarantees:
//   - Nothing local waits for the network. Deps.Report must not block. Deps.Evict, metrics and
//     their Actions are called in the background.
//   - Each change is on record before it is made, and is given back by the record after a crash.
//   - If the record was lost or never written, groups below their specification are restored all
//     the same, and frozen groups are thawed at once.
//   - When Run ends, it thaws the tasks that it froze. Other changes stay, and the next Run goes
//     on.
//   - If the process is killed, frozen tasks stay frozen until the next Run, which thaws them when
//     their time is up.
//   - A frozen task is thawed before it is stopped, whether the loop or another program stops it.
//   - A limit of a metric's own is on record too, is set again by the next Run, and is given back.
//   - A group that has vanished is no error. A change that the kernel refuses is an event, and the
//     task is left alone for a while.
//   - Changes to a group by other programs are noticed at the latest at its eighth sample, and
//     always before the loop changes the group.
//
// Each guaranteed task with a quota gets a burst once, as large as its quota: the unused part of
// one period may be used in the next. The value of a user-defined metric is at most two of its
// intervals old; otherwise it is missing.
//
// Callbacks of Deps are called while a sample is under way, so they must not call Status.
//
// Cost: a sweep, a read of an eighth of the groups, and a look at each rule. That is 5 to 10 µs a
// task, or a tenth of a percent of a core for 200 tasks (BenchmarkLoop). The heap is below a MiB:
// it holds the sweep, and the last snapshot and plan.
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
// Metric.Measure measures. Sort, Limit, Throttle and Restore of qos.Metric plan. Metric.Actions
// carry the plan out where quotas of control groups and Deps.Evict do not fit. OpenSubtree gives
// the loop control groups, without which it needs no privileges. examples/qos-loop is such a
// program.
//
// The design is crane's agent with improvements of its peers; qos/DESIGN.md lists them.
// internal/agent owns the Loop of a node.
package nodeqos
