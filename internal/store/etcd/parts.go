package etcd

import (
	"cmp"
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/plimsoll-dev/plimsoll"
)

// partBytes is the size of a part, but for the last of a value. One part fits in a request.
const partBytes = 1 << 20

// maxGarbage bounds the parts that wait for their removal. The next leader removes what is beyond.
const maxGarbage = 10_000

// parts knows which values are in parts.
type parts struct {
	live    map[string]partID // by the key that refers to them
	garbage []string          // prefixes of the keys of parts that nothing refers to
	number  uint64            // of the last id; ids of a term differ by it, and terms by the epoch
}

// writeParts writes the largest values of a request in parts, until the rest of it takes at most so
// many bytes. In the request they are replaced by references.
//
// Parts are compared with nothing but the place: nobody reads them before the transaction that
// refers to them. So they are sent again if the answer is missing.
func (s *Store) writeParts(ctx context.Context, t *term, r *request, bytes int) error {
	over := r.bytes() - bytes
	if over <= 0 {
		return nil
	}
	order := make([]int, len(r.changes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(len(r.changes[b].value), len(r.changes[a].value))
	})
	r.written = map[string]partID{}
	w := partsWriter{store: s, term: t}
	for _, i := range order {
		c := &r.changes[i]
		if over <= 0 || len(c.value) <= partsSize {
			break
		}
		t.parts.number++
		id := partID{t.meta.epoch, t.parts.number}
		if err := w.add(ctx, c, id); err != nil {
			return err
		}
		over -= len(c.value) - partsSize
		r.written[c.key] = id
		c.value = partsRef{id: id, bytes: uint64(len(c.value) - 1)}.encode()
	}
	return w.flush(ctx)
}

// partsWriter collects parts to requests.
type partsWriter struct {
	store *Store
	term  *term
	ops   []clientv3.Op
	bytes int
}

func (w *partsWriter) add(ctx context.Context, c *change, id partID) error {
	rest := c.value[1:]
	for n := uint32(0); len(rest) > 0; n++ {
		part := rest[:min(len(rest), partBytes)]
		rest = rest[len(part):]
		key := w.store.key(partKey(c.key, id, n))
		bytes := len(key) + len(part) + opBytes
		if w.bytes+bytes > requestBytes || len(w.ops) == MaxOps {
			if err := w.flush(ctx); err != nil {
				return err
			}
		}
		w.ops = append(w.ops, clientv3.OpPut(key, part))
		w.bytes += bytes
	}
	return nil
}

func (w *partsWriter) flush(ctx context.Context) error {
	ops := w.ops
	w.ops, w.bytes = nil, 0
	if len(ops) == 0 {
		return nil
	}
	var err error
	for range 1 + resends {
		err = w.store.fenced(ctx, w.term, ops)
		if err == nil || plimsoll.CodeOf(err) == plimsoll.CodeStale || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// fenced applies operations if the place is held, and nothing otherwise.
func (s *Store) fenced(ctx context.Context, t *term, ops []clientv3.Op) error {
	call, cancel := context.WithTimeout(ctx, s.cfg.callTimeout())
	defer cancel()
	answer, err := s.client.Txn(call).If(t.place.holds()).Then(nest(ops)...).Commit()
	if err != nil {
		return s.unreachable("write parts to etcd", err)
	}
	if !answer.Succeeded {
		t.place.lease.lose()
		return errLost(t.epoch)
	}
	return nil
}

// applied notes that a request was applied, and which parts nothing refers to any more.
func (p *parts) applied(r *request) {
	if len(p.live) > 0 {
		for i := range r.changes {
			p.forget(r.changes[i].key)
		}
		if r.trim > 0 {
			below := revisionKey(chunkPrefix, r.trim)
			for _, key := range p.chunksBelow(below) {
				p.forget(key)
			}
		}
	}
	if p.live == nil {
		p.live = map[string]partID{}
	}
	for key, id := range r.written {
		p.live[key] = id
	}
}

func (p *parts) chunksBelow(below string) []string {
	var keys []string
	for key := range p.live {
		if key[0] == chunkPrefix[0] && key < below {
			keys = append(keys, key)
		}
	}
	return keys
}

func (p *parts) forget(key string) {
	id, found := p.live[key]
	if !found {
		return
	}
	delete(p.live, key)
	if len(p.garbage) < maxGarbage {
		p.garbage = append(p.garbage, partsKey(key, id))
	}
}

// removeGarbage removes parts that nothing refers to. If it fails, they stay until the next time.
func (s *Store) removeGarbage(ctx context.Context, t *term) {
	if len(t.parts.garbage) == 0 {
		return
	}
	now := t.parts.garbage[:min(len(t.parts.garbage), nestedOps)]
	ops := make([]clientv3.Op, 0, len(now))
	for _, prefix := range now {
		ops = append(ops, clientv3.OpDelete(s.key(prefix), clientv3.WithPrefix()))
	}
	if err := s.fenced(ctx, t, ops); err != nil {
		s.cfg.Logger.Warn("parts of former values stay in etcd for now", "error", err)
		return
	}
	t.parts.garbage = t.parts.garbage[len(now):]
}

// recoverParts finds the values in parts, and removes parts that a former leader has left.
func (t *term) recoverParts(ctx context.Context) error {
	t.parts = parts{live: map[string]partID{}}
	var last string // prefix of the parts that were looked at last
	_, err := t.store.scanKeys(ctx, partPrefix, func(key string) error {
		owner, id, err := decodePartKey(key)
		if err != nil {
			return plimsoll.Errorf(plimsoll.CodeCorrupt, "%v", err)
		}
		prefix := partsKey(owner, id)
		if prefix == last {
			return nil
		}
		last = prefix
		refers, err := t.store.refersTo(ctx, owner, id)
		if err != nil {
			return err
		}
		if refers {
			t.parts.live[owner] = id
		} else if len(t.parts.garbage) < maxGarbage {
			t.parts.garbage = append(t.parts.garbage, prefix)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for n := len(t.parts.garbage); n > 0; n = len(t.parts.garbage) {
		if t.store.removeGarbage(ctx, t); len(t.parts.garbage) == n {
			break // they are tried again after the next transaction
		}
	}
	return nil
}

// refersTo reports whether the value of a key is in the parts with an id.
func (s *Store) refersTo(ctx context.Context, owner string, id partID) (bool, error) {
	call, cancel := context.WithTimeout(ctx, s.cfg.callTimeout())
	defer cancel()
	got, err := s.client.Get(call, s.key(owner))
	if err != nil {
		return false, s.unreachable("read from etcd", err)
	}
	if len(got.Kvs) == 0 {
		return false, nil
	}
	ref, found, err := decodeParts(owner, got.Kvs[0].Value)
	return found && ref.id == id, err
}

// resolve returns the value in its whole form, at a revision of etcd.
func (s *Store) resolve(ctx context.Context, key string, value []byte, revision int64) ([]byte, error) {
	ref, found, err := decodeParts(key, value)
	if err != nil {
		return nil, err
	}
	if !found {
		return value[1:], nil
	}
	if ref.bytes > MaxBytes+chunkHeader {
		return nil, plimsoll.Errorf(
			plimsoll.CodeCorrupt, "the value of %q in etcd claims to have %d bytes", key, ref.bytes,
		)
	}
	all := make([]byte, 0, ref.bytes)
	prefix := partsKey(key, ref.id)
	if _, err := s.scan(ctx, prefix, "", revision, func(_ string, part []byte) error {
		all = append(all, part...)
		return nil
	}); err != nil {
		return nil, err
	}
	if uint64(len(all)) != ref.bytes {
		return nil, plimsoll.Errorf(
			plimsoll.CodeCorrupt, "the value of %q in etcd has parts of %d bytes, and should have %d", key, len(all),
			ref.bytes,
		)
	}
	return all, nil
}
