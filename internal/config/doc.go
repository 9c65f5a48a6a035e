// Package config reads and prints the files that people write: the job file, the queue file, the
// placement file and the policy file.
//
// All are YAML, or JSON, which is a part of YAML. They are read strictly: an unknown field, a
// repeated field, a wrong type or an impossible value is an error. It names the file, the line,
// the field and the correct form. As many problems as possible are reported at once, as one
// *Error.
//
//	spec, err := config.ParseJob("wordcount.yaml", data)
//	var problems *config.Error
//	if errors.As(err, &problems) {
//		fmt.Println(problems) // a line for each: file:line: field: message
//	}
//
// The job file has the fields of plimsoll.JobSpec. The placement file has those of
// placement.Settings and a chain of stages, which is checked as a whole and made into a
// placement.Chain. The policy file has a document for each policy, with the fields of
// plimsoll.NodeQOS, Action and TaskQOS.
//
// The queue file is in YuniKorn's schema (partitions, queues, resources), and is accepted if
// YuniKorn accepts it; DESIGN.md has the differences. Parts without an effect are kept, and
// QueueNotes names them.
//
// The package owns nothing: no goroutine, no file, no global state. It reads no file itself;
// callers pass the bytes, and a name for the messages. Hostile input costs a bounded amount of
// memory and time. The bounds are MaxFileBytes bytes, 400,000 tokens, 64 levels of nesting, and
// 200,000 values after aliases are expanded. Cost grows linearly with the file, except for very
// long mappings, which are bounded for that reason.
//
// It does NOT know whether a queue exists or a node has room; the coordinator checks that. Its
// callers are cmd/plimsoll and the processes that read a queue file. The schema of the queue file
// is that of Apache YuniKorn's "Partition and Queue Configuration".
package config
