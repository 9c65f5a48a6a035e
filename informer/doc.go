// Package informer keeps a copy of a source's objects in memory, and tells handlers of each
// change.
//
//	nodes, err := informer.NewSharedInformer(informer.Config[*plimsoll.Node]{
//		Source: source, // for example a watch of a gateway
//		Key:    func(n *plimsoll.Node) (string, error) { return n.ID, nil },
//		Same:   func(a, b *plimsoll.Node) bool { return a.Revision == b.Revision },
//	})
//	handler, err := nodes.AddHandler(informer.Handler[*plimsoll.Node]{Add: add, Update: update, Delete: remove},
//		informer.HandlerOptions{Resync: time.Hour})
//	go nodes.Run(ctx)
//	<-handler.Synced()
//	node, known, err := nodes.Indexer().Get("n1")
//
// The parts can also be used alone:
//
//	Source ──► Reflector ──► DeltaFIFO ──► Indexer ──► log ──► Handler, Handler, …
//
// From the left to the right:
//
//   - A Source is the caller's: it sends a snapshot and then each change, with its Version.
//   - A Reflector follows a Source. After a break it resumes, or takes a new snapshot.
//   - A DeltaFIFO holds each changed key once, in the order of first changes, with all since.
//   - An Indexer is an ordered store with indexes. Its readers use snapshots, which never change.
//   - A Snapshot is a view of an Indexer. The snapshot of a source is its whole content; the queue
//     calls it a list, as client-go does.
//   - A Loader takes the place of Reflector and queue for a caller that is handed the messages. A
//     Reflector opens its Source itself, and resumes.
//   - A SharedInformer joins them: it applies all that is queued in one step, then tells handlers.
//
// # Guarantees
//
// The index shows only states that the source had, whole, and in their order. Its version never
// falls, and Indexer.WaitFor waits for one. A handler is told of a change after the index has it.
// It ends with the state of the source, is told the changes of a key in their order, and none
// twice. Changes of a key that wait in the queue together are told as their net effect: one call,
// or a deletion and an addition. There is no order between handlers. Every error goes to Events. A
// message that could not be applied is not lost: a new snapshot follows, after a pause.
//
// A handler that asked for no resync is never shown an unchanged object, not even by a relist. One
// that panics is told of, keeps its place, and harms no other.
//
// Objects are shared by the index and all handlers, so nobody may change one.
//
// # Bounds
//
// The queue is bounded by Config.MaxQueueBytes. When it is full it first joins the changes of
// each key, then drops all, and the reflector takes a snapshot. A snapshot that is being received
// is bounded by Config.MaxSnapshotBytes; a larger one is an error. The index has the size of the
// source.
//
// The changes that wait for a handler are bounded by HandlerOptions.MaxBacklog and
// MaxBacklogBytes. Beyond them the handler has fallen behind, which its Stats and
// Events.HandlerFellBehind show:
//
//  1. It is still told all of its backlog, in order.
//  2. Later changes are not kept for it. The informer keeps the snapshot that the index had then.
//  3. After its backlog the handler is told the difference between that snapshot and the index:
//     deletions first, then additions and updates, each key once. It then follows the log again.
//
// A handler with Reset is given the whole index in place of the difference, and no snapshot is
// kept for it. So a handler costs at most its backlog and two snapshots, the one it is told and
// the one it fell behind at. A snapshot shares what has not changed with the index. A step with
// more changes than MaxBacklog reaches every handler as a difference; the first content always
// does.
//
// # Goroutines
//
// Run starts one goroutine that follows the source, one that applies, one for resyncs, and one
// for each handler, and waits for all of them. Soon after ctx ends no further call of a handler
// begins. The changes that wait are counted as dropped in Stats. No lock is held during a call, so
// a handler may call every method. A call that never returns keeps Run from returning.
//
// # Cost
//
// Handlers share one log, however many there are. A change takes 40 bytes in it if T is a pointer,
// otherwise 24 and two objects. A handler is woken once for a batch. An update costs the key
// function, one lookup in the queue, and the Indexer's O(log n). A relist compares each object
// once, and one that changed twice. A handler that fell behind compares each object of two
// snapshots.
//
// DESIGN.md has the design that this package follows, the differences, and the test of each
// sentence.
package informer
