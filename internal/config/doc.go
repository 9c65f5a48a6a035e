// Package config reads and prints the files that people write: the job file, the queue file, the
// placement file and the policy file.
//
// All are YAML, and JSON as the part of YAML that it is. They are read strictly: an unknown field,
// a field that stands twice, a wrong type or an impossible value is an error that names the file,
// the line, the field and what to write instead. As many problems as can be found are reported at
// once, as one *Error.
//
// The job file has the fields of plimsoll.JobSpec. The placement file has those of
// placement.Settings and a chain of stages, which is checked as a whole: what comes out is a
// placement.Chain. The policy file has a document for each policy, with the fields of
// plimsoll.NodeQOS, Action and TaskQOS. The queue file is in YuniKorn's schema (partitions, queues,
// resources). What YuniKorn knows and Plimsoll does not act on yet is refused as "not supported
// yet", because a limit that is silently not kept is worse than an error. Let through is only what
// describes what Plimsoll does anyway:
//
//   - submitacl and adminacl that are empty or "*": everybody may submit;
//   - preemption with enabled: false: nothing is preempted;
//   - placementrules with the single rule "provided" without create: a job names its queue, and the queue must exist;
//   - the property application.sort.policy: fifo: jobs of a leaf are served in the order in which they came;
//   - limits, properties, placementrules and childtemplate that are empty.
//
// The package owns nothing: no goroutine, no file, no global state. It reads no file itself;
// callers pass the bytes, and a name for the messages. Hostile input costs a bounded amount of
// memory and time: at most MaxFileBytes bytes, 400,000 tokens, 64 levels of nesting, and 200,000
// values after aliases are counted out. Cost grows linearly with the file except for very long
// mappings, which are bounded for that reason.
//
// It does NOT know whether a queue exists or a node has room; the coordinator says that. It is used
// by cmd/plimsoll and by the processes that read a queue file. The schema of the queue file is that
// of Apache YuniKorn's "Partition and Queue Configuration".
package config
