// Package qos keeps a machine loaded up to its lines and never past them: given what was measured
// on a node and its policies, it says which tasks to act on, in which order, by how much and why,
// and what to give back.
//
// The design is crane's "Pod Sorting And Precise Execution": waterlines in three sets, gaps, a
// table of metrics with their attributes (Metric, Registry), sorters composed of keys (OrderedBy),
// and precise execution: what can be quantified is done until the gap is gone and no further. Where
// the original leaves something open or goes wrong, DESIGN.md says what is done here.
//
// Plan is pure: Snapshot, Policies and Ledger go in, a Result with ordered steps comes out, and
// nothing is changed. Ledger is the memory between samples; whoever executes calls Accept, Begin
// and Done. Numbers are integers: nanocores, bytes, thousandths of a percent.
//
// What it does not do: measure, write to control groups, know a clock, or speak to anybody.
// qos/nodeqos does that, in the node's agent and in any Go program, with metrics of its own too
// (NewRegistry). A metric throttles by quotas of processors, or by numbers of its own (Limit).
//
// Cost: a sample at which no rule fires and nothing is held costs one look at each rule. Otherwise
// a plan matches each task with each TaskQOS once, sorts the tasks once a sorter, and looks at each
// candidate at most once a rule and rung: O(tasks × (log tasks + TaskQOS + rules that fire)). Its
// memory is of the same order and is given back with the Result. A Ledger holds at most one entry a
// rule and three a task of the node.
package qos
