package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/plimsoll-dev/plimsoll"
)

// resends is how often a transaction is sent anew that certainly was not applied.
const resends = 3

// change is a put or a delete of one key.
type change struct {
	key    string // without the prefix of the store
	value  string // as it is stored
	delete bool
}

// request is one transaction, made of items.
type request struct {
	after   meta     // to be stored with it, but for the count of commits
	changes []change // each key once
	trim    uint64   // chunks below it are removed
	record  bool     // it has a batch, so the changed keys are listed
	written map[string]partID
}

// newRequest merges items. The last change of a key counts.
func newRequest(before meta, group []*item) *request {
	r := &request{after: before}
	at := map[string]int{}
	set := func(c change) {
		if i, found := at[c.key]; found {
			r.changes[i] = c
			return
		}
		at[c.key] = len(r.changes)
		r.changes = append(r.changes, c)
	}
	for _, i := range group {
		r.trim = max(r.trim, i.trim)
		if i.raise {
			r.after.epoch++
		}
		if i.batch == nil {
			continue
		}
		r.record = true
		r.after.revision, r.after.time = i.batch.Revision, i.batch.Time
		for n := range i.batch.Mutations {
			m := &i.batch.Mutations[n]
			if m.Ephemeral {
				continue
			}
			c := change{key: recordKey(m.Kind, m.Key), delete: m.Value == nil}
			if !c.delete {
				b := make([]byte, 1, 1+len(m.Value)) // whole
				c.value = string(append(b, m.Value...))
			}
			set(c)
		}
		if i.batch.Events.Count > 0 {
			set(change{key: revisionKey(chunkPrefix, i.batch.Revision), value: encodeChunk(&i.batch.Events)})
		}
	}
	return r
}

// bytes returns what the changes take in a request.
func (r *request) bytes() int {
	sum := 0
	for i := range r.changes {
		sum += maxPrefix + len(r.changes[i].key) + len(r.changes[i].value) + opBytes
	}
	return sum
}

// transact writes a group of items. When it returns nil, all of it is durable. ctx ends with the
// lease.
func (s *Store) transact(ctx context.Context, t *term, group []*item) error {
	r := newRequest(t.meta, group)
	list := t.changes.list(t.meta.revision, r)
	if err := s.writeParts(ctx, t, r, requestBytes-len(list)); err != nil {
		return err
	}
	if len(list) > 0 && r.bytes()+len(list) > requestBytes {
		list = "" // LoadSince begins anew after this
	}
	ops := s.operations(t, r, list)
	if err := s.apply(ctx, t, r, ops); err != nil {
		return err
	}
	t.changes.applied(r, list)
	t.parts.applied(r)
	s.removeGarbage(ctx, t)
	return nil
}

// operations returns the operations of a request, but for that on the store's own record.
func (s *Store) operations(t *term, r *request, list string) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(r.changes)+ownOps)
	for i := range r.changes {
		if c := &r.changes[i]; c.delete {
			ops = append(ops, clientv3.OpDelete(s.key(c.key)))
		} else {
			ops = append(ops, clientv3.OpPut(s.key(c.key), c.value))
		}
	}
	if r.trim > 0 {
		ops = append(ops, clientv3.OpDelete(
			s.key(chunkPrefix), clientv3.WithRange(s.key(revisionKey(chunkPrefix, r.trim))),
		))
	}
	if r.record {
		ops = append(ops, t.changes.operations(s, r.after.revision, list)...)
	}
	return ops
}

// nest puts operations on two levels if they are too many for one.
func nest(ops []clientv3.Op) []clientv3.Op {
	if len(ops) <= nestedOps {
		return ops
	}
	outer := make([]clientv3.Op, 0, nestedOps)
	for part := range slices.Chunk(ops, nestedOps) {
		outer = append(outer, clientv3.OpTxn(nil, part, nil))
	}
	return outer
}

// apply applies a request once, or returns an error. Then the term must end.
func (s *Store) apply(ctx context.Context, t *term, r *request, ops []clientv3.Op) error {
	var failed error
	for range 1 + resends {
		before := t.meta
		after := r.after
		after.commits = before.commits
		after = after.next()
		put := clientv3.OpPut(s.key(metaKey), after.encode())
		found, err := s.exchange(ctx, t, before, append(slices.Clip(ops), put))
		if err == nil && found == nil { // it was applied
			t.meta = after
			return nil
		}
		if err == nil && found.meta == after.encode() { // something between here and etcd has sent it twice
			t.meta = after
			return nil
		}
		if err == nil {
			return found.foreign(t, r)
		}
		failed = err
		s.cfg.Logger.Warn(
			"a transaction was not answered; its outcome is settled", "revision", r.after.revision, "error", err,
		)
		applied, err := s.settle(ctx, t, before, after, r)
		switch {
		case err != nil:
			return err
		case applied:
			t.meta = after
			return nil
		}
	}
	return s.unreachable("write to etcd", failed)
}

// finding is the content of the two compared keys, as a transaction found it that was not applied.
type finding struct {
	holds bool   // the place is still held
	meta  string // the store's own record
}

// exchange sends a transaction that compares the place and the store's own record. It returns nil
// if it was applied. With an error the outcome is not known.
func (s *Store) exchange(ctx context.Context, t *term, before meta, ops []clientv3.Op) (*finding, error) {
	call, cancel := context.WithTimeout(ctx, s.cfg.callTimeout())
	defer cancel()
	answer, err := s.client.Txn(call).If(t.place.holds(), s.metaIs(before)).Then(nest(ops)...).
		Else(clientv3.OpGet(t.place.key, clientv3.WithKeysOnly()), clientv3.OpGet(s.key(metaKey))).Commit()
	if err != nil {
		return nil, err
	}
	t.seen.note(answer.Header.Revision)
	if answer.Succeeded {
		return nil, nil //nolint:nilnil // nothing was found, it was applied
	}
	f := &finding{}
	if leader := answer.Responses[0].GetResponseRange().GetKvs(); len(leader) > 0 {
		f.holds = leader[0].GetCreateRevision() == t.place.created
	}
	if record := answer.Responses[1].GetResponseRange().GetKvs(); len(record) > 0 {
		f.meta = string(record[0].GetValue())
	}
	return f, nil
}

// foreign returns the error of a transaction that was refused because of a finding.
func (f *finding) foreign(t *term, r *request) error {
	if !f.holds {
		t.place.lease.lose()
		return errLost(t.epoch)
	}
	return plimsoll.Errorf(plimsoll.CodeConflict,
		"revision %d was not stored: somebody who does not lead has changed the store's own record in etcd; "+
			"let nothing else write below the prefix",
		r.after.revision)
}

// settle finds out whether a transaction was applied that was not answered. It may still be under
// way. So settle does not just read: it changes the record that the transaction compares, with a
// barrier. The barrier compares the same, so only one of the two can be applied. The barrier's own
// outcome may be unknown too; then the same barrier is sent again.
//
// If etcd refuses all writes for settleTimeout while it keeps the lease alive, the lease is given
// up.
//
// If settle returns false, the transaction was not applied and never will be. The term's record is
// the barrier's then. An error means that the outcome is not known.
func (s *Store) settle(ctx context.Context, t *term, before, after meta, r *request) (applied bool, err error) {
	barrier := before.next()
	barrier.barrier = true
	put := clientv3.OpPut(s.key(metaKey), barrier.encode())
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for ctx.Err() == nil {
		found, err := s.exchange(ctx, t, before, []clientv3.Op{put})
		switch {
		case errors.Is(err, rpctypes.ErrNoSpace):
			return false, unknown(r, s.unreachable("write a barrier to etcd", err))
		case err != nil:
			pause(ctx, retryPause)
			continue
		case found == nil || found.holds && found.meta == barrier.encode():
			t.meta = barrier
			return false, nil
		case found.meta == after.encode():
			return true, nil
		case found.holds:
			return false, found.foreign(t, r)
		}
		t.place.lease.lose()
		return false, unknown(r, errLost(t.epoch))
	}
	t.place.lease.lose()
	return false, unknown(r, context.Cause(ctx))
}

// settleTimeout bounds the time in which the outcome of a transaction is looked for.
const settleTimeout = 30 * time.Second

func unknown(r *request, cause error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeOutcomeUnknown, Op: "write to etcd", Err: cause,
		Msg: fmt.Sprintf("revision %d was stored or not; the next leader knows", r.after.revision),
	}
}
