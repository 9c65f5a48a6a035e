// Package wire is the encoding of the vocabulary: each object is encoded once, and the same bytes
// are stored, replicated and answered. It gives conversions between the plain types of package
// plimsoll and the generated messages, the encoding of records and batches, the keys of records,
// the table of error codes over RPC and HTTP, and the bounds of messages that come in: Bounded is
// for every service, and counts what a message takes before it is decoded.
//
// It owns nothing but a memo of how large messages are: no goroutine, no lock. Every function may
// be called from everywhere at once.
//
// Guarantees:
//   - The same value always gives the same bytes: maps are written in the order of their keys, zero
//     fields are left out.
//   - What Append writes, Decode reads back as an equal value, with two exceptions that the
//     encoding cannot tell apart: an empty list or string map comes back as nil, and text that is
//     not UTF-8 comes back with U+FFFD in place of the bad bytes. Resources are a message, so nil
//     stays nil and empty stays empty.
//   - Decode never panics. Bytes that are no such message, text that is not UTF-8, and an
//     enumeration number that this version does not know are CodeCorrupt errors: to guess at the
//     state of a task would be worse than to refuse. Unknown fields are skipped, so that fields may
//     be added. FromProto, which cannot fail, turns an unknown enumeration number into zero, which
//     the validation of requests refuses.
//
// Task, JobStatus, Mutation and Batch, of which there are many, are written and read by hand and
// fuzzed against the generated code; the others go through the generated code. Appending costs the
// bytes written and allocates nothing beyond the growth of dst for those four; decoding a task
// allocates once for its id, job and group together, and once for each other text.
//
// It does not say what a valid job or node is (package plimsoll does), and does not pack events
// (package ring does).
package wire
