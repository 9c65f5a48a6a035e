// Package ring is the bounded memory of recent events, and their packed form. Events are
// committed, stored, replicated and held in that form. An Encoder packs the events of one turn
// into a chunk, Decode unpacks a chunk, and a Ring holds the newest chunks:
//
//	encoder.Append(&event)
//	data := encoder.Finish(nil)
//	r.Append(firstID, 1, data)
//	err := r.View().Batch(firstID, 100, func(id uint64, ev *plimsoll.Event) bool { … })
//
// It owns the memory of its chunks and nothing else. A Ring has one writer. A View is an immutable
// value that any number of goroutines may read while the ring changes. The package does not number
// instances (the caller has an InstanceUUID) and does not interpret events. It does not stream: a
// reader requests a batch after an id, and then the next batch.
//
// Guarantees:
//   - Events come out as they went in, in order, with ids that follow without a gap. Only a message
//     above plimsoll.MaxEventMessage, and an id above 4 KiB, are cut. They are cut at the end of a
//     character, and then end in "...".
//   - The ring shows the newest events within its Bounds of count, bytes and age, and those that a
//     reader holds back, within a bound of their own. New bounds keep all ids.
//   - The same events give the same bytes, whatever the encoder packed before.
//   - Malformed bytes are a CodeCorrupt error, never a panic.
//
// Cost: packing is linear in the texts of an event that are new in the chunk, and constant for the
// others. It allocates nothing in the steady state. Appending a chunk to the ring copies its
// bytes. Reading from the middle of a chunk unpacks it from its start. Taking a View costs
// nothing. An event of a usual batch job takes about eight bytes (see DESIGN.md).
//
// The design is "Historical Usage Tracking", sections Event storage, REST and Memory usage of
// historical elements. The engine packs, the leader and every gateway hold a Ring, and the REST and
// event services read Views.
package ring
