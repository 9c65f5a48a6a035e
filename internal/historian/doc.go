// Package historian is the role that keeps the history: all events of a cluster, the usage and the
// jobs that they tell, for as long as they are wanted. The command "plimsoll historian" runs it,
// and `dev` has one inside.
//
//	h, err := historian.New(historian.Config{
//		Source: client, Open: open, Reader: reader, Listen: "127.0.0.1:9086", Access: access,
//	})
//	err = h.Run(ctx) // follows and serves until ctx ends
//
// It follows the events of any gateway, folds them (package history/fold), and writes both in
// batches (package history). It serves plimsoll.v1.HistoryService, the same questions as JSON under
// /history/v1/, /healthz, /readyz and /metrics.
//
// Guarantees:
//   - Each event is in the history once, in the order of ids, whatever is killed and when. The
//     place to go on from is written together with the events.
//   - Events that a gateway no longer has are a Gap, with their ids and times. Behind it the
//     history goes on from a snapshot of the lists, which are read after the next event has come.
//     The same holds for a history that begins late, and for a store that was replaced.
//   - While the history cannot be written nothing is taken in, and that is said: in the log, by
//     /healthz, and by the metric plimsoll_historian_up. The gateways hold the events back
//     meanwhile, up to a bound: it registers, and reports the position that is on the disk.
//     Questions are still answered, as far as the file can be read.
//   - An event is answered for within a second of its commit, unless more come than can be
//     written.
//   - The uid, owner and labels of a job are in its first event. A job that an older version took
//     in has none there. It is counted to no owner, unless the history began with a list of it.
//
// Bounds: the events that wait to be written (maxWaitingBytes); questions answered at a time
// (Config.Questions), each for at most questionTimeout; folds of the past that are kept for further
// pages (maxPastBytes). Further questions are refused with CodeExhausted.
//
// Run owns the listener, the writer and its goroutines, and waits for them. The Reader belongs to
// the caller.
//
// Cost: one stream of a gateway, which answers from its copy. The leader gets a report of the
// position, at most every five seconds, and every minute if it stays.
package historian
