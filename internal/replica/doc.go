// Package replica carries the leader's state to the gateways and proves, for each strict read, that
// a gateway's copy is fresh.
//
// It gives: Tables, ordered copy-on-write tables of encoded records, and Snapshot, an immutable
// view of them, the same code at leader and gateway; Source and NewHandler, the leader's end of the
// replication streams; Follower, the gateway's end, with Barrier (a snapshot that holds everything
// that was committed when the call began), Do (a command to the leader) and Watch.
//
// It owns, at the leader: a bounded log of encoded batches, and up to three goroutines a stream
// beside its handler's. At the gateway: three goroutines while Follower.Run follows a stream, and a
// few while it looks for the leader. It does not decode records, decide anything about jobs, write
// to disk, or answer reads from the leader's tables.
//
// Guarantees (each is a test that cites the obligation of the protocol):
//   - A batch is in every stream before a reply or an acknowledgement that follows it (O1, O2).
//   - A gateway publishes a snapshot before it releases whoever waits for it (O3).
//   - A reader is released only by a sync that was sent after the reader arrived; ids decide, never
//     clocks (O4).
//   - The leader acknowledges a sync only after a proof of leadership that began after the sync
//     arrived (O5).
//   - Snapshot and live batches meet without a gap or an overlap; a copy equals the leader's at the
//     same revision (O6).
//   - An older epoch, or an older revision of the same epoch, is refused (O8).
//   - A link that is lost without a word is found in four seconds, and replaced if there is a way
//     to the leader (docs/recovery.md).
//   - A slow gateway slows nobody down: the log is shared and bounded, and who falls out of it
//     starts again from a snapshot. One that has not read its stream for a minute is cut off.
//
// Cost: a batch costs O(mutations × log(records)) and one O(1) snapshot at each side, and one
// encoding at the leader however many gateways follow. A barrier costs one round trip shared by all
// that wait. A reader takes no lock.
//
// It comes from the design "Titus gateways" (strictly consistent reads from caches), with its
// timers and wall-clock marks replaced by ids and the order of one stream. DESIGN.md has the
// reasons. The coordinator calls Source, the gateway calls Follower.
package replica
