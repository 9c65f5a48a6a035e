// Package etcd is a store.Store on a cluster of etcd, which several processes can have open. One of
// them leads.
//
// It gives the guarantees of package store. A batch is one transaction of etcd. The transaction
// compares two keys, and changes nothing if one of them differs:
//
//   - the leader's key has the creation revision of this leader (fencing);
//   - the store's own record, meta, is as the transaction before left it (order).
//
// One transaction is under way at a time. Batches that come meanwhile are merged into the next one.
//
// Leadership is etcd's election: the oldest key under a lease leads, the others wait in the order
// of their creation. The lease is kept alive. Its time is counted from the instant before a
// keep-alive was sent, by CLOCK_BOOTTIME, less a margin for the drift of clocks. So this process
// stops to lead before etcd lets another lead, even if it was paused (see lease).
//
// A transaction may fail without an answer, and may still be under way then. It is never sent again
// blindly: a barrier changes the record that it compares, or finds what it has written (see
// settle). If nothing can be learned before the lease ends, the term ends.
//
// etcd takes 128 operations on one level of a transaction and requests of 1.5 MiB. So operations
// are nested. Values for which one request has no room are written in parts, before the transaction
// that refers to them. Parts that nothing refers to are removed by the next leader. Each
// transaction stores the list of the keys that it changes, so that LoadSince reads only these.
//
//	s, err := etcd.Open(ctx, etcd.Config{Endpoints: endpoints, Advertise: address})
//	epoch, err := s.Lead(ctx, waiting)
//	revision, time, err := s.Load(ctx, record, events)
//	pending, err := s.Commit(batch)
//	err = pending.Wait() // nil: a majority of the members has it
//
// A member may hang and keep its connections, as when its disk does. Each member is asked all the
// time, and one that is silent gets no calls until it answers (members). A watch is begun anew once
// in a TTL.
//
// The package owns a client with its connections, one more for each endpoint, and a goroutine for
// each. A leader has five more. They end when the leadership or the store ends. It keeps in memory
// the batches that wait, at most MaxWaitingBytes, and the keys of the records that are in parts. It
// does NOT make backups, or defragment the members. The leader compacts etcd's history, of all keys
// of the cluster.
//
// Cost: a commit costs one round trip to etcd, its fsync on a majority, and a share of those that
// came before. Load costs the bytes that are stored, in pages. Its callers are the coordinator, and
// for Leaders the processes that look for it.
package etcd
