// Package qos plans how a node is kept at its waterlines. A waterline is a value of a metric, such
// as cpu use, that a rule permits. From a snapshot of the node and its policies the package plans
// which tasks to act on, in which order, by how much and why. The same plan gives back what was
// taken earlier, as soon as there is room.
//
// The gap of a rule is the amount between the metric and the rule's target: its release line, or
// else its waterline. An action is a ladder of up to five rungs, tried in this order: lower a
// weight, throttle, freeze, reclaim memory, evict.
//
// The design is crane's "Pod Sorting And Precise Execution". It has waterlines in three sets, gaps,
// a table of metrics with their attributes (Metric, Registry), and sorters composed of keys
// (OrderedBy). Execution is precise: an action whose release can be computed goes on until the gap
// is gone, and no further. DESIGN.md describes the places where the original leaves something open
// or goes wrong.
//
// Plan is pure: Snapshot, Policies and Ledger go in, a Result with ordered steps comes out, and
// nothing is changed. Ledger is the memory between samples; the executor of a plan calls Accept,
// Begin and Done. Numbers are integers: nanocores, bytes, thousandths of a percent. A sample is
// handled so:
//
//	result := qos.Plan(snapshot, policies, ledger, now)
//	ledger.Accept(result, snapshot)
//	for i := range result.Steps {
//		step := &result.Steps[i]
//		ledger.Begin(step, now)
//		ledger.Done(step, execute(step), now)
//	}
//
// The package does not measure, write to control groups, read a clock, or use the network. Its
// callers do: qos/nodeqos runs the loop in the node's agent and in any Go program, with metrics of
// its own too (NewRegistry), and internal/rehearsal tries policies out. A metric throttles by
// quotas of processors, or by numbers of its own (Limit).
//
// Cost: a sample at which no rule fires and nothing is held costs one look at each rule. Otherwise
// a plan matches each task with each TaskQOS once and sorts the tasks once for each sorter. It
// looks at each candidate at most once for each rule and rung: O(tasks × (log tasks + TaskQOS +
// rules that fire)). The memory of a plan is of the same order and is given back with the Result. A
// Ledger holds at most one entry for each rule and three for each task of the node.
package qos
