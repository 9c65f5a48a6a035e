// Package simulate runs the production engine in virtual time, over nodes whose agents obey at
// once.
//
// RunScenario runs a scenario of queue scheduling, and returns the differences from its
// expectations.
//
//	differences, err := simulate.RunScenario(&scenario, config.ParseQueues, 1)
//
// Run runs a workload under a tree of queues, and returns a Report: waits, use and fragmentation
// over time, fairness. ReadPods, ReadOpenBNodes and Synthesize make workloads, and package
// history/trace makes those of the past: their reports have the waits of then. Page makes a page
// with plots of reports.
//
// Guarantees: the same input and seed give the same result. The engine is the one of the
// coordinator, with its state, its queues and its placement chain. None of them is modelled.
//
// Only the agents are modelled. One starts a task at the instant at which it is bound, and stops it
// at the instant at which that is asked for. There is no network and no store.
//
// The package starts nothing, and reads no clock and no file. Its caller is the command plimsoll
// simulate. The cost is that of the engine's turns: two for each instant at which something
// happens, and a few microseconds for each task.
package simulate
