// Package informer keeps a copy of a source's objects in memory and tells handlers of each change.
//
// A DeltaFIFO stands between the source and the copy. It holds each changed key once, in the order
// of their first changes, with all changes since:
//
//	queue, err := informer.NewDeltaFIFO(informer.FIFOConfig[*plimsoll.Task]{Key: key, Size: size})
//	...
//	err = queue.Update(task) // the side that watches
//	...
//	// the side that applies
//	err = queue.Drain(ctx, func(batch informer.Batch[*plimsoll.Task]) error {
//		for deltas := range batch.All() {
//			apply(deltas)
//		}
//		return nil
//	})
//
// It owns no goroutine. Its content is bounded in bytes; a full queue drops all and asks for a new
// list. A change costs the same however many keys are queued.
package informer
