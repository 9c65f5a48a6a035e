package coordinator

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// standbyCopy is the copy of the leader's records that a process keeps while it stands by. With it
// the process need not read them all from the store when it takes over. It costs the memory of a
// gateway's copy, and is dropped when the process leads. Its following begins with follow and ends
// with take.
type standbyCopy struct {
	cfg *Config

	// They end the following under way; cancel is nil if there is none. Only leadLoop uses them.
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu struct {
		sync.Mutex
		leader   string            // address that the store has named; empty: none
		told     string            // error that was told last; empty: it has followed since
		follower *replica.Follower // of the following under way; nil: there is none
	}
}

// Find implements replica.Finder: the address that the store has named, then Config.Peers.
func (s *standbyCopy) Find(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	leader := s.mu.leader
	s.mu.Unlock()
	var places []string
	if leader != "" {
		places = append(places, leader)
	}
	if s.cfg.Peers == "" {
		return places, nil
	}
	finder, err := replica.ParseFinder(s.cfg.Peers)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	peers, err := finder.Find(ctx)
	for _, peer := range peers {
		if peer != s.cfg.Listen && peer != s.cfg.Advertise && !slices.Contains(places, peer) {
			places = append(places, peer)
		}
	}
	if len(places) == 0 {
		return nil, cmp.Or(err, error(plimsoll.Errorf(plimsoll.CodeUnavailable, "the leader's address is not known")))
	}
	return places, nil
}

// follow begins to follow the leader, whose address the store may have named. Without any address
// it does nothing.
func (s *standbyCopy) follow(ctx context.Context, leader string) {
	s.mu.Lock()
	s.mu.leader = cmp.Or(leader, s.mu.leader)
	known := s.mu.leader != "" || s.cfg.Peers != ""
	s.mu.Unlock()
	if !known || s.cancel != nil {
		return
	}
	f, err := replica.NewFollower(replica.FollowerConfig{
		Gateway: "standby-" + uuid.NewString(), Standby: s.cfg.Advertise, Finder: s,
		Tokens: s.cfg.Tokens, Dial: s.cfg.Dial,
		HistoryBytes: 1, // nobody watches it
		Version:      s.cfg.Version,
		Events: replica.FollowerEvents{
			Live:         s.live,
			Disconnected: s.disconnected,
		},
	})
	if err != nil {
		return // Validate has read the same fields; without a copy everything is loaded
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	s.mu.follower = f
	s.mu.Unlock()
	s.ended.Go(func() { _ = f.Run(ctx) }) // it ends with ctx, and returns nil then
}

// live tells that the copy follows the leader.
func (s *standbyCopy) live(epoch, revision uint64, _ bool) {
	s.mu.Lock()
	s.mu.told = ""
	s.mu.Unlock()
	s.cfg.Events.Following(epoch, revision)
}

// disconnected tells why the leader cannot be followed, once for each reason.
func (s *standbyCopy) disconnected(err error, _ time.Duration) {
	s.mu.Lock()
	news := s.mu.told != err.Error()
	s.mu.told = err.Error()
	s.mu.Unlock()
	if news {
		s.cfg.Events.NotFollowing(s.revision(), err)
	}
}

// take ends the following, and returns the copy; nil if there is none.
func (s *standbyCopy) take() *replica.Tables {
	if s.cancel == nil {
		return nil
	}
	s.cancel()
	s.ended.Wait()
	s.cancel = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := s.mu.follower.Tables()
	s.mu.leader, s.mu.follower = "", nil
	return copied
}

// following returns the follower of the following under way; nil: there is none.
func (s *standbyCopy) following() *replica.Follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.follower
}

// revision returns the revision of the copy; 0: there is none.
func (s *standbyCopy) revision() uint64 {
	f := s.following()
	if f == nil {
		return 0
	}
	if latest := f.Latest(); latest != nil {
		return latest.Revision()
	}
	return 0
}

// reader reads what is stored, as store.Store.Load does.
type reader func(
	ctx context.Context, record func(kind wire.Kind, key string, value []byte) error,
	events func(revision uint64, chunk wire.EventChunk) error,
) (revision uint64, time int64, err error)

// stored is the source of a load: a reader, and a copy that has many of the records already. The
// load goes on with the copy; nil: there is none.
type stored struct {
	read   reader
	copied *replica.Tables
}

// copiedKinds are the kinds whose records a copy has as the store does. All others that are stored
// are read from there. The status of a job is replicated more often than it is stored, and outcomes
// are not replicated. Of the rest there is one record each.
var copiedKinds = [wire.NumKinds]bool{
	wire.KindJobSpec: true, wire.KindTask: true, wire.KindNode: true, wire.KindPolicy: true,
	wire.KindHistorian: true,
}

// neverStored are the kinds that are replicated only.
var neverStored = [wire.NumKinds]bool{wire.KindNodeStatus: true, wire.KindQueueStatus: true}

// afterCopy returns the source of a load for a process that has a copy. It asks the store for the
// changes since the copy, and for the kinds that the copy does not have. It returns false if the
// store cannot tell, or if the copy has another history or no event to go on from. Then everything
// has to be loaded. epoch is that of the process.
func afterCopy(ctx context.Context, st store.Store, copied *replica.Tables, epoch uint64) (stored, bool) {
	kinds, able := st.(store.KindLoader)
	if copied == nil || !able {
		return stored{}, false
	}
	l := &laterChanges{copied: copied.Snapshot(), kinds: kinds}
	if _, _, ok := l.copied.Events().Range(); !ok || l.copied.Epoch() >= epoch {
		return stored{}, false // the store keeps the newest event, which has the id of the next
	}
	if err := l.read(ctx, st); err != nil {
		return stored{}, false // Load finds the same error, unless it is CodeNotFound
	}
	if same, err := l.sameHistory(ctx); err != nil || !same {
		return stored{}, false
	}
	return stored{l.load, copied}, true
}

// sameHistory reports whether the events of the copy and of the store have the same InstanceUUID.
// A store that was restored from a backup may have another.
func (l *laterChanges) sameHistory(ctx context.Context) (same bool, err error) {
	err = l.kinds.LoadKind(ctx, wire.KindEventIDs, func(_ string, value []byte) error {
		ids, err := wire.DecodeEventIDs(value)
		same = ids.Instance == l.copied.InstanceUUID()
		return err
	})
	return same, err //nolint:wrapcheck // nobody sees it
}

// laterChanges are a copy and the changes in the store since.
type laterChanges struct {
	copied *replica.Snapshot
	kinds  store.KindLoader

	changed  [wire.NumKinds]map[string][]byte // nil values: deleted
	chunks   []laterChunk
	revision uint64
	time     int64
}

type laterChunk struct {
	revision uint64
	chunk    wire.EventChunk
}

// read asks the store for the changes since the copy.
func (l *laterChanges) read(ctx context.Context, st store.Store) (err error) {
	l.revision, l.time, err = st.LoadSince(
		ctx, l.copied.Revision(), func(kind wire.Kind, key string, value []byte) error {
			if !copiedKinds[kind] {
				return nil
			}
			if l.changed[kind] == nil {
				l.changed[kind] = map[string][]byte{}
			}
			if value != nil {
				value = append([]byte{}, value...)
			}
			l.changed[kind][key] = value
			return nil
		}, func(revision uint64, chunk wire.EventChunk) error {
			chunk.Data = append([]byte(nil), chunk.Data...)
			l.chunks = append(l.chunks, laterChunk{revision, chunk})
			return nil
		})
	return err //nolint:wrapcheck // nobody sees it
}

// load is a reader. A chunk of the copy has the revision 0, because the copy does not know in which
// batch it came. So the store keeps the events of the copy until all of them may go: at most twice
// as many events as the settings say, for as long.
func (l *laterChanges) load(
	ctx context.Context, record func(kind wire.Kind, key string, value []byte) error,
	events func(revision uint64, chunk wire.EventChunk) error,
) (revision uint64, time int64, err error) {
	for kind := wire.Kind(1); kind < wire.NumKinds; kind++ {
		switch {
		case neverStored[kind]:
		case copiedKinds[kind]:
			err = l.each(kind, record)
		default:
			err = l.kinds.LoadKind(ctx, kind, func(key string, value []byte) error { return record(kind, key, value) })
		}
		if err != nil {
			return 0, 0, err
		}
	}
	for chunk := range l.copied.Events().Chunks() {
		if chunk.Count == 0 {
			continue // it only holds the id of the next event
		}
		if err := events(0, wire.EventChunk{FirstID: chunk.FirstID, Count: chunk.Count, Data: chunk.Data}); err != nil {
			return 0, 0, err
		}
	}
	for _, c := range l.chunks {
		if err := events(c.revision, c.chunk); err != nil {
			return 0, 0, err
		}
	}
	return l.revision, l.time, nil
}

// each calls record for the records of a kind that the copy has.
func (l *laterChanges) each(
	kind wire.Kind, record func(kind wire.Kind, key string, value []byte) error,
) error {
	changed := l.changed[kind]
	for key, value := range l.copied.Scan(kind, "", "") {
		if _, later := changed[key]; later {
			continue
		}
		if err := record(kind, key, value); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		if value := changed[key]; value != nil {
			if err := record(kind, key, value); err != nil {
				return err
			}
		}
	}
	return nil
}
