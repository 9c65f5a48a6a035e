// Package plimsoll is the vocabulary of the Plimsoll workload control plane: jobs, tasks, nodes,
// queues, resources, events and error codes, as plain Go values, and the validation of single
// values.
//
// The package imports nothing of the module, and everything else imports it. It owns no goroutine,
// file or lock. Every function is pure; costs are linear in the value that is passed in.
//
// A caller builds a value and validates it before sending it:
//
//	spec := plimsoll.JobSpec{ID: "wordcount", Queue: plimsoll.DefaultQueue, Groups: groups}
//	if err := spec.Validate(); err != nil {
//		return err // names the field that is wrong, and how to write it
//	}
//
// Each idea has one word:
//
//   - Job: the unit that a user submits: an owner, a queue and task groups. (YuniKorn: application;
//     Titus: job.)
//   - Group: tasks of a job that share one specification.
//   - Task: one unit to place and run. It is a request until it is bound to a node, and an
//     allocation after. (Titus: task; Triton: instance.)
//   - Attempt: one try at running a task, numbered from 1. A task that is tried again keeps its id
//     and gets the next attempt.
//   - Node: a machine with capacity. (Triton: server; Titus: agent.)
//   - Queue: a place in the tree of queues, named by its full path such as root.batch. A leaf holds
//     jobs.
//   - Resource: a named amount. cpu is in milli-cores, memory and disk are in bytes, any other name
//     is a plain count.
//   - Event: one record of a change, as the design "Historical Usage Tracking" defines it.
//   - Revision: the number of the committed batch that last changed an object. It never goes back.
//   - Epoch: the number of the leader that made a batch. A new leader has a higher one.
package plimsoll
