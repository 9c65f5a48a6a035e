// Package replica carries the leader's state to the gateways. A strict read shows everything that
// was acknowledged before it began; for each such read the package proves that the gateway's copy
// is fresh.
//
// Tables are ordered tables of encoded records with indexes, and Snapshot is an immutable view of
// them; leader and gateway share this code. They are indexers of package informer. Source and
// NewHandler are the leader's end of the replication streams, which the coordinator uses. Relay is
// the same at a gateway that others follow. Follower is the gateway's end:
//
//	f, err := replica.NewFollower(replica.FollowerConfig{Gateway: "g1", Leader: "10.0.0.1:9081"})
//	...
//	go f.Run(ctx) // follows the leader until ctx ends
//	snapshot, err := f.Barrier(ctx) // holds everything committed when the call began
//	snapshot, age, err := f.Recent() // the copy as it is, without a wait
//	reply, err := f.Do(ctx, command) // sends a command to the leader
//
// The gateway's copy has a History of the changes that made it, with the record before and behind
// each, for watches:
//
//	r := f.ReadChanges(replica.Part{Kind: wire.KindTask, By: replica.ByNode, Value: "n1"}, false)
//	defer r.Close()
//	<-r.Changed() // a task came to the node, changed there or left it
//	whole, err := r.Each(r.View(), look)
//
// At the leader and at relays the package owns a bounded log of encoded batches, and up to three
// goroutines a stream beside its handler's. It also owns the encoded parts of one snapshot, within
// a bound. At the gateway it owns three goroutines while Follower.Run follows a stream, and a few
// while it looks for the leader. It reads the indexed fields of records and decodes none of them.
// It does not decide anything about jobs, write to disk, or answer reads from the leader's tables.
//
// Guarantees, with the numbers by which comments and tests cite them:
//   - A batch is in every stream before a reply or an acknowledgement that follows it (O1, O2).
//   - A gateway publishes a snapshot before it releases the readers that wait for it (O3).
//   - A reader is released only by a sync that was sent after the reader arrived; ids decide, never
//     clocks (O4).
//   - The leader acknowledges a sync only after a proof of leadership that began after the sync
//     arrived (O5).
//   - Snapshot and live batches meet without a gap or an overlap; a copy equals the leader's at the
//     same revision (O6).
//   - An older epoch, or an older revision of the same epoch, is refused (O8).
//   - A lost connection is found within four seconds even if no error tells of it, and is replaced
//     if the leader can be reached (docs/recovery.md).
//   - A relay acknowledges a sync after its parent's acknowledgement of one that it sent later, and
//     behind everything that its parent sent before.
//   - A stream with a Filter carries everything that passes it. A relay with one refuses streams
//     that ask for more.
//   - The history holds every change behind the snapshot with which the copy began, in the order of
//     versions and one for each object and batch, until its bytes exceed their bound. Over the
//     takeover of another leader it holds one for each object that differs. It is published before
//     the snapshot of the same version.
//   - A slow gateway slows nobody down: the log is shared and bounded, and a gateway that falls out
//     of it starts again from a snapshot. A gateway that has not read its stream for a minute is
//     cut off.
//
// Cost: a batch costs O(mutations × log(records)) and one O(1) snapshot at each side, and one
// encoding at the leader however many gateways follow. A snapshot is encoded once for all that need
// it at the same time. A stream with a filter costs a look at each mutation. A barrier costs one
// round trip, shared by all that wait, and one more for each relay. A reader takes no lock. The
// history costs the gateway two look-ups a mutation, and 512 bytes and the replaced record a
// change, up to its bound. A takeover costs it a look at each record. A change costs one look-up
// more for each property by which there are readers. A batch costs a signal for each reader of the
// parts that it changes. Idle readers of other parts cost nothing: 2,000 of them leave the time of
// a commit as it is. A reader looks at the changes of its part alone, unless it is far behind. A
// part keeps at most 1 KiB of positions for all its readers.
//
// The design is "Titus gateways" (strictly consistent reads from caches). Ids and the order of one
// stream replace its timers and wall-clock marks; DESIGN.md has the reasons.
package replica
