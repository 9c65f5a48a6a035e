// Package wire is the encoding of the vocabulary: each object is encoded once, and the same bytes
// are stored, replicated and answered. The package has the conversions between the types of package
// plimsoll and the generated messages. It has the encoding of records and batches, and the keys of
// records. It also has the table of error codes over RPC and HTTP, and the bounds on incoming
// messages. Nearly every package that stores, sends or receives an object calls it:
//
//	data := wire.AppendTask(nil, &task)
//	task, err := wire.DecodeTask(data) // an equal task, or a CodeCorrupt error
//	key := wire.TaskKey(task.Job, task.Group, task.Index)
//
// Bounded is an option for every service: it counts the decoded size of a message before the
// message is decoded.
//
// The package owns no goroutine, and no state but a memo of the sizes of message types. Any number
// of goroutines may call its functions at once.
//
// Guarantees:
//   - The same value always gives the same bytes: maps are written in the order of their keys, zero
//     fields are left out.
//   - Decode reads back an equal value of whatever Append wrote, with two exceptions. An empty list
//     or string map comes back as nil, because the encoding cannot tell the two apart. Text that is
//     not UTF-8 comes back with U+FFFD in place of the bad bytes. Resources are a message, so nil
//     stays nil and empty stays empty.
//   - Decode never panics. Malformed bytes, text that is not UTF-8, and an unknown enumeration
//     number are CodeCorrupt errors: a wrong guess at the state of a task would be worse than a
//     refusal. Unknown fields are skipped, so that fields may be added. FromProto cannot fail: it
//     turns an unknown enumeration number into zero, which the validation of requests refuses.
//
// Task, JobStatus, Mutation and Batch are frequent, so hand-written code encodes and decodes them,
// and is fuzzed against the generated code. All other objects go through the generated code. For
// those four, appending allocates nothing beyond the growth of dst. Decoding a task allocates once
// for its id, job and group together, and once for each other text.
//
// Package plimsoll, not this one, validates jobs and nodes, and package ring packs events.
package wire
