// Package ring is the bounded memory of recent events, and the packed form in which events are
// committed, stored, replicated and held: an Encoder packs the events of one turn into a chunk,
// Decode unpacks a chunk, and a Ring holds the newest chunks.
//
// It owns the memory of its chunks and nothing else. A Ring has one writer; a View is an immutable
// value that any number of goroutines may read while the ring goes on. It does not number instances
// (the caller has an InstanceUUID), does not say what an event means, and does not stream: a reader
// asks for a batch after an id, and asks again.
//
// Guarantees:
//   - Events come out as they went in, in order, with ids that follow without a gap. Only a message above
//     plimsoll.MaxEventMessage, and an id above 4 KiB, are cut, at the end of a character, and end in "...".
//   - The ring shows at most its capacity: the newest ones.
//   - The same events give the same bytes, whatever the encoder packed before.
//   - Malformed bytes are a CodeCorrupt error, never a panic.
//
// Cost: packing is linear in the text of an event that the chunk has not seen, and constant for
// what it has; it allocates nothing in the steady state. Appending a chunk to the ring copies its
// bytes. Reading from the middle of a chunk unpacks it from its start. Taking a View costs nothing.
// An event of a usual batch job takes about eight bytes (see DESIGN.md).
//
// The design is "Historical Usage Tracking", sections Event storage, REST and Memory usage of
// historical elements. The engine packs, the leader and every gateway hold a Ring, and the REST and
// event services read Views.
package ring
