package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	pageBytes      = 4 << 20 // aim for the values of a page
	pagesAhead     = 3       // read while one is taken
	firstPage      = 64      // keys
	longestPage    = 1_000   // keys; a member of etcd may have to put together so many large values
	tasksPage      = 20_000  // keys of tasks, which are small
	pageTries      = 4       // of one page; a member may hang
	growth         = 4       // of a page over the one before
	shortestPage   = 16      // keys; so many values of any size are below maxAnswerBytes
	maxAnswerBytes = 32 << 20
	readers        = 32 // keys that LoadSince reads at the same time
)

func isCompacted(err error) bool { return errors.Is(err, rpctypes.ErrCompacted) }

// stored is the store's own record at a revision of etcd.
type stored struct {
	value    meta
	revision int64
}

// readMeta reads the store's own record, at a revision or at the present one.
func (s *Store) readMeta(ctx context.Context, revision int64) (stored, error) {
	call, cancel := context.WithTimeout(ctx, s.cfg.callTimeout())
	defer cancel()
	got, err := s.client.Get(call, s.key(metaKey), clientv3.WithRev(revision))
	if err != nil {
		return stored{}, s.unreachable("read from etcd", errors.Join(err, ctx.Err()))
	}
	r := stored{revision: got.Header.Revision}
	if len(got.Kvs) > 0 {
		r.value, err = decodeMeta(got.Kvs[0].Value)
	}
	return r, err
}

// page is some keys of a scan.
type page struct {
	kvs  []*mvccpb.KeyValue
	more bool
	err  error
}

// scan calls visit for each key that begins with prefix and is not below from, in their order. It
// reads at a revision of etcd; 0: the present one. Keys are without the prefix of the store.
func (s *Store) scan(
	ctx context.Context, prefix, from string, revision int64, visit func(key string, value []byte) error,
) (int64, error) {
	keys := keyRange{max(prefix, from), clientv3.GetPrefixRangeEnd(prefix), longestPage}
	return s.scanRange(ctx, keys, revision, visit)
}

// keyRange is a range of keys without the prefix of the store.
type keyRange struct {
	from, end string
	longest   int64 // most keys of a page
}

// recordRanges returns the ranges of all records, in order. etcd counts all keys up to the end of
// the range for each page. There may be a million tasks, so their pages are long.
func recordRanges() []keyRange {
	tasks := rangeOf(wire.KindTask)
	return []keyRange{
		{recordPrefix, tasks.from, longestPage},
		tasks,
		{tasks.end, clientv3.GetPrefixRangeEnd(recordPrefix), longestPage},
	}
}

// rangeOf returns the range of the records of a kind.
func rangeOf(kind wire.Kind) keyRange {
	prefix := recordKey(kind, "")
	r := keyRange{prefix, clientv3.GetPrefixRangeEnd(prefix), longestPage}
	if kind == wire.KindTask {
		r.longest = tasksPage
	}
	return r
}

func (s *Store) scanRange(
	ctx context.Context, r keyRange, revision int64, visit func(key string, value []byte) error,
) (int64, error) {
	return s.pages(ctx, r, revision, nil, func(kv *mvccpb.KeyValue) error {
		return visit(string(kv.Key[len(s.cfg.Prefix):]), kv.Value)
	})
}

// scanKeys is scan without the values.
func (s *Store) scanKeys(ctx context.Context, prefix string, visit func(key string) error) (int64, error) {
	r := keyRange{prefix, clientv3.GetPrefixRangeEnd(prefix), longestPage}
	return s.pages(ctx, r, 0, []clientv3.OpOption{clientv3.WithKeysOnly()}, func(kv *mvccpb.KeyValue) error {
		return visit(string(kv.Key[len(s.cfg.Prefix):]))
	})
}

// pages reads page after page, and some ahead.
func (s *Store) pages(ctx context.Context, r keyRange, revision int64, opts []clientv3.OpOption,
	visit func(kv *mvccpb.KeyValue) error,
) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	if revision == 0 {
		now, err := s.readMeta(ctx, 0)
		if err != nil {
			cancel()
			return 0, err
		}
		revision = now.revision
	}
	key, end := s.key(r.from), s.key(r.end)
	read := make(chan page, pagesAhead-1)
	var reader errgroup.Group
	reader.Go(func() error {
		defer close(read)
		limit := int64(firstPage)
		for more := true; more; {
			p := s.readPage(ctx, key, end, revision, limit, opts)
			if more = p.more && p.err == nil; more {
				key = string(p.kvs[len(p.kvs)-1].Key) + "\x00"
				limit = min(nextPage(p.kvs), growth*limit, r.longest)
			}
			select {
			case read <- p:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	err := visitPages(ctx, read, visit)
	cancel()
	_ = reader.Wait() // it returns no error: a page has it
	return revision, err
}

func visitPages(ctx context.Context, read <-chan page, visit func(kv *mvccpb.KeyValue) error) error {
	for p := range read {
		if p.err != nil {
			return p.err
		}
		for _, kv := range p.kvs {
			if err := visit(kv); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// nextPage returns the number of keys that have about pageBytes, if they are as large as these.
func nextPage(kvs []*mvccpb.KeyValue) int64 {
	bytes := 1
	for _, kv := range kvs {
		bytes += len(kv.Key) + len(kv.Value)
	}
	return int64(max(pageBytes*len(kvs)/bytes, shortestPage))
}

// readPage reads one page. If its answer is larger than maxAnswerBytes, it reads a short one. If
// none comes, another member is asked: calls go to one after the other.
func (s *Store) readPage(
	ctx context.Context, key, end string, revision, limit int64, opts []clientv3.OpOption,
) page {
	for try := 1; ; {
		call, cancel := context.WithTimeout(ctx, pageTimeout)
		got, err := s.client.Get(call, key, append([]clientv3.OpOption{
			clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(limit),
		}, opts...)...)
		silent := call.Err() != nil
		cancel()
		switch {
		case err == nil:
			return page{kvs: got.Kvs, more: got.More}
		case ctx.Err() != nil:
			return page{err: ctx.Err()}
		case isCompacted(err):
			return page{err: s.errCompacted(err)}
		case !silent && limit > shortestPage:
			limit = shortestPage
		case try < pageTries:
			try++
		default:
			return page{err: s.unreachable("read from etcd", err)}
		}
	}
}

func (s *Store) errCompacted(err error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Op: "read from etcd", Err: err,
		Msg: "etcd has forgotten the revision that is read, because its history is compacted too often; read again",
	}
}

// beginLoad begins a load after all that this process has begun to write.
func (s *Store) beginLoad(ctx context.Context) (context.Context, func(), error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	if t := s.term(); t != nil {
		if err := t.settled(ctx); err != nil {
			end()
			return nil, nil, err
		}
	}
	return ctx, end, nil
}

// Load implements store.Store. All of it is read at one revision of etcd.
func (s *Store) Load(ctx context.Context, record func(kind wire.Kind, key string, value []byte) error,
	events func(revision uint64, chunk wire.EventChunk) error,
) (revision uint64, time int64, err error) {
	ctx, end, err := s.beginLoad(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer end()
	last, err := s.readMeta(ctx, 0)
	if err != nil {
		return 0, 0, err
	}
	for _, r := range recordRanges() {
		if _, err := s.scanRange(ctx, r, last.revision, func(key string, value []byte) error {
			return s.visitRecord(ctx, key, value, last.revision, record)
		}); err != nil {
			return 0, 0, err
		}
	}
	return last.value.revision, last.value.time, s.loadChunks(ctx, 0, last, events)
}

// LoadKind implements store.KindLoader.
func (s *Store) LoadKind(
	ctx context.Context, kind wire.Kind, record func(key string, value []byte) error,
) error {
	ctx, end, err := s.beginLoad(ctx)
	if err != nil {
		return err
	}
	defer end()
	last, err := s.readMeta(ctx, 0)
	if err != nil {
		return err
	}
	_, err = s.scanRange(ctx, rangeOf(kind), last.revision, func(key string, value []byte) error {
		return s.visitRecord(ctx, key, value, last.revision, func(_ wire.Kind, name string, value []byte) error {
			return record(name, value)
		})
	})
	return err
}

func (s *Store) visitRecord(ctx context.Context, key string, value []byte, revision int64,
	record func(kind wire.Kind, key string, value []byte) error,
) error {
	kind, name, err := decodeRecordKey(key)
	if err != nil {
		return err
	}
	if value, err = s.resolve(ctx, key, value, revision); err != nil {
		return err
	}
	return record(kind, name, value)
}

// loadChunks calls events for each chunk of a revision from first on.
func (s *Store) loadChunks(
	ctx context.Context, first uint64, last stored, events func(revision uint64, chunk wire.EventChunk) error,
) error {
	from := revisionKey(chunkPrefix, first)
	_, err := s.scan(ctx, chunkPrefix, from, last.revision, func(key string, value []byte) error {
		value, err := s.resolve(ctx, key, value, last.revision)
		if err != nil {
			return err
		}
		revision, chunk, err := decodeChunk(key, value)
		if err != nil {
			return err
		}
		return events(revision, chunk)
	})
	return err
}

// LoadSince implements store.Store. It knows the changes of about the last MaxChangesBytes of
// changed keys.
func (s *Store) LoadSince(ctx context.Context, since uint64,
	record func(kind wire.Kind, key string, value []byte) error,
	events func(revision uint64, chunk wire.EventChunk) error,
) (revision uint64, time int64, err error) {
	ctx, end, err := s.beginLoad(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer end()
	last, err := s.readMeta(ctx, 0)
	if err != nil {
		return 0, 0, err
	}
	keys, err := s.changedSince(ctx, since, last)
	if err != nil {
		return 0, 0, err
	}
	if err := s.loadKeys(ctx, keys, last.revision, record); err != nil {
		return 0, 0, err
	}
	return last.value.revision, last.value.time, s.loadChunks(ctx, since+1, last, events)
}

// changedSince returns the keys that were changed after a revision, and some that were changed
// before.
func (s *Store) changedSince(ctx context.Context, since uint64, last stored) ([]string, error) {
	if since == last.value.revision {
		return nil, nil
	}
	var keys []string
	known := map[string]bool{}
	first, reached := true, since
	if _, err := s.scan(ctx, changesPrefix, revisionKey(changesPrefix, since+1), last.revision,
		func(key string, value []byte) error {
			revision, err := revisionOf(changesPrefix, key)
			if err != nil {
				return err
			}
			before, changed, err := decodeList(key, value)
			if err != nil {
				return err
			}
			if first && before <= since || !first && before == reached {
				reached = revision
			}
			first = false
			for _, k := range changed {
				if !known[k] {
					known[k] = true
					keys = append(keys, k)
				}
			}
			return nil
		}); err != nil {
		return nil, err
	}
	if reached != last.value.revision || since > reached {
		return nil, plimsoll.Errorf(
			plimsoll.CodeNotFound, "the store in etcd is at revision %d and does not know all changes since %d",
			last.value.revision, since,
		)
	}
	return keys, nil
}

// loadKeys calls record for each of some keys.
func (s *Store) loadKeys(ctx context.Context, keys []string, revision int64,
	record func(kind wire.Kind, key string, value []byte) error,
) error {
	values := make([][]byte, readers)
	for len(keys) > 0 {
		now := keys[:min(len(keys), readers)]
		keys = keys[len(now):]
		group, ctx := errgroup.WithContext(ctx)
		for i, key := range now {
			group.Go(func() (err error) {
				values[i], err = s.readKey(ctx, key, revision)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err //nolint:wrapcheck // readKey says what it was doing
		}
		for i, key := range now {
			kind, name, err := decodeRecordKey(key)
			if err != nil {
				return err
			}
			if err := record(kind, name, values[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// readKey returns the value of a record at a revision of etcd; nil if there is none.
func (s *Store) readKey(ctx context.Context, key string, revision int64) ([]byte, error) {
	call, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	got, err := s.client.Get(call, s.key(key), clientv3.WithRev(revision))
	switch {
	case isCompacted(err):
		return nil, s.errCompacted(err)
	case err != nil:
		return nil, s.unreachable("read from etcd", errors.Join(err, ctx.Err()))
	case len(got.Kvs) == 0:
		return nil, nil
	}
	value, err := s.resolve(ctx, key, got.Kvs[0].Value, revision)
	if value == nil && err == nil {
		value = []byte{} // an empty value is not a deleted one
	}
	return value, err
}
