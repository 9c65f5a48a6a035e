package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// watchMessageBytes bounds one message of a watch. A larger object is a message of its own.
	watchMessageBytes = 64 << 10
	// watchPause is the least time between two messages of a watch that has caught up. Changes that
	// come meanwhile share the next message. It grows with the number of watches, up to a bound: so
	// the messages of a gateway are at most 20,000 a second until the bound is reached.
	watchPause     = 20 * time.Millisecond
	pauseEach      = 50 * time.Microsecond
	longWatchPause = 80 * time.Millisecond
	// beginTries bounds the reads with which a watch begins while the copy is replaced.
	beginTries = 5
	// bookmarkInterval is the time after which a watch without changes is sent a message that moves
	// its point.
	bookmarkInterval = 10 * time.Second
	// bookmarkChanges is the number of changes that a watch may pass over before it is sent such a
	// message. A quarter of the history counts instead if it is more.
	bookmarkChanges = 1024
)

// The reasons for which a gateway ends a watch, as plimsoll_gateway_watches_cut_total names them.
const (
	cutBehind   = "behind"   // the history no longer has the watch's next change
	cutEpoch    = "epoch"    // another leader, whose state cannot be compared with the copy
	cutHistory  = "history"  // the gateway's copy began again with a snapshot of the same leader
	cutPoint    = "point"    // the point to resume from is not in the history
	cutSnapshot = "snapshot" // the caller has not read the snapshot in time
	cutSlow     = "slow"     // the reader of a stream of events under /ws/v1 does not take what is sent
	cutNoRoom   = "no_room"  // the requests under way take as many bytes as they may
)

func cutReasons() []string {
	return []string{cutBehind, cutEpoch, cutHistory, cutPoint, cutSnapshot, cutSlow, cutNoRoom}
}

// watchers is the set of the watches under way, for the metric of their lag and for their pauses.
type watchers struct {
	mu struct {
		sync.Mutex
		set map[*watch]struct{}
	}
}

func (ws *watchers) add(w *watch) (remove func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.mu.set == nil {
		ws.mu.set = map[*watch]struct{}{}
	}
	ws.mu.set[w] = struct{}{}
	return func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		delete(ws.mu.set, w)
	}
}

// pause returns the least time between two messages of one of the watches.
func (ws *watchers) pause() time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return min(max(watchPause, time.Duration(len(ws.mu.set))*pauseEach), longWatchPause)
}

// lag returns the largest number of changes that a watch has not looked at yet.
func (ws *watchers) lag(view *replica.Changes) (most uint64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.mu.set {
		if at, end := w.reached.Load(), view.End(w.kind); at > 0 && at < end {
			most = max(most, end-at)
		}
	}
	return most
}

// watch is one watch of a user. It reads the gateway's history through a position of its own, and
// holds no queue: between two messages it keeps the position alone.
type watch struct {
	g    *Gateway
	rpc  string
	kind wire.Kind
	want criteria
	from *pb.WatchPoint // where to resume; nil: begin with a snapshot
	send func(encoded []byte) error
	json bool // send decodes and renders each message

	derive     func(*replica.Change) any // g.frame
	charge     *charge                   // of the request; nil: it did not come over the routes
	changes    *replica.ChangeReader
	generation uint64        // of the history that positions belong to
	point      replica.Point // of the last message
	pointed    uint64        // position of that point
	message    watchMessage

	// reached is the position behind which the watch has looked at nothing yet; 0: none is known,
	// or the watch waits for a change of its part. Only run stores it.
	reached atomic.Uint64
}

// run sends the watch until its context ends or it is cut.
func (w *watch) run(ctx context.Context) error {
	w.derive = w.g.frame
	w.charge, _ = ctx.Value(chargeKey{}).(*charge)
	w.changes = w.g.replica.ReadChanges(w.want.part(w.kind), true)
	defer w.changes.Close()
	defer w.g.metrics.watching(w.rpc)()
	defer w.g.watchers.add(w)()
	if err := w.start(ctx); err != nil {
		return err
	}
	return w.follow(ctx)
}

// start finds the position at which the changes begin, and sends the snapshot before them unless
// the watch resumes. The snapshot is kept no longer.
func (w *watch) start(ctx context.Context) error {
	snapshot, position, err := w.begin(ctx)
	if err == nil && w.from == nil {
		err = w.sendSnapshot(ctx, snapshot)
	}
	w.changes.Begin(position)
	w.pointed = position
	w.reached.Store(position)
	return err
}

// begin makes a strict read, and finds the position in the history at which the changes begin.
func (w *watch) begin(ctx context.Context) (*replica.Snapshot, uint64, error) {
	for range beginTries {
		snapshot, err := w.g.read(ctx)
		if err != nil {
			return nil, 0, err
		}
		view := w.g.replica.Changes()
		if view.Epoch() != snapshot.Epoch() || view.Revision() < snapshot.Revision() {
			continue // the copy began anew between both, and the next read waits for its leader
		}
		at := replica.Point{Epoch: snapshot.Epoch(), Revision: snapshot.Revision()}
		if w.from != nil {
			at = replica.Point{Epoch: w.from.GetEpoch(), Revision: w.from.GetRevision(), Part: w.from.GetPart()}
		}
		position, err := view.After(w.kind, at)
		if err != nil && w.from == nil {
			continue // changes beyond the whole history came between both
		}
		if plimsoll.CodeOf(err) == plimsoll.CodeStale {
			w.g.metrics.watchCut(cutPoint)
		}
		w.generation, w.point = view.Generation(), at
		return snapshot, position, err
	}
	return nil, 0, plimsoll.Errorf(plimsoll.CodeUnavailable,
		"this gateway's copy is being replaced faster than a watch of it can begin; try again")
}

// sendSnapshot sends the objects that meet the criteria, and behind them the end of the snapshot.
func (w *watch) sendSnapshot(ctx context.Context, snapshot *replica.Snapshot) error {
	deadline := time.Now().Add(w.g.cfg.AnswerTimeout)
	looked := 0
	for key, object := range w.want.objects(snapshot, w.kind) {
		if looked++; looked%lookEvery == 0 && ctx.Err() != nil {
			return callerGone(ctx)
		}
		met, err := w.want.meets(snapshot, w.kind, key, &object)
		if err != nil {
			return err
		}
		if !met {
			continue
		}
		w.message.add(pb.WatchChange_WATCH_CHANGE_PRESENT, w.kind, &object, w.want.specs, 0, false)
		if len(w.message.data) < watchMessageBytes {
			continue
		}
		if err := w.flush(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return w.cut(cutSnapshot, plimsoll.Errorf(plimsoll.CodeExhausted,
				"the snapshot of this watch was not read within %s; narrow the criteria, or read faster",
				w.g.cfg.AnswerTimeout))
		}
	}
	w.message.end(w.point, true)
	return w.flush()
}

// follow sends the changes behind the watch's position.
func (w *watch) follow(ctx context.Context) error {
	bookmark := time.NewTimer(bookmarkInterval)
	defer bookmark.Stop()
	quiet := false // no message was sent for bookmarkInterval
	for {
		sent, full, err := w.step(quiet)
		if err != nil {
			return err
		}
		if sent || quiet {
			quiet = false
			bookmark.Reset(bookmarkInterval)
		}
		switch {
		case full:
			continue
		case sent:
			if err := pause(ctx, w.g.watchers.pause()); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return callerGone(ctx)
		case <-w.changes.Changed():
		case <-bookmark.C:
			quiet = true
		}
	}
}

// pause waits for a duration, or fails at the end of the context.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return callerGone(ctx)
	case <-timer.C:
		return nil
	}
}

// step sends one message with the changes behind the watch's position, if there is one to send. A
// bookmark is sent if the watch was quiet and its point has moved, or if it has passed over many
// changes. full reports that more changes wait.
func (w *watch) step(quiet bool) (sent, full bool, err error) {
	view := w.changes.View()
	if view.Generation() != w.generation {
		return false, false, w.replaced(view)
	}
	full, err = w.collect(view)
	if err != nil {
		return false, false, err
	}
	position := w.changes.Position()
	w.reached.Store(position)
	far := position-w.pointed > uint64(max(bookmarkChanges, view.Len(w.kind)/4))
	if w.message.changes == 0 && (!quiet && !far || position < view.First(w.kind) ||
		view.PointAt(w.kind, position) == w.point) {
		w.idle(full)
		return false, full, nil
	}
	w.pointed, w.point = position, view.PointAt(w.kind, position)
	w.message.end(w.point, false)
	return true, full, w.flush()
}

// idle notes that a watch of a part waits: changes of others do not count as its lag.
func (w *watch) idle(full bool) {
	if !full && w.want.part(w.kind).By != replica.Every {
		w.reached.Store(0)
	}
}

// replaced ends a watch whose history was replaced.
func (w *watch) replaced(view *replica.Changes) error {
	if view.Epoch() != w.point.Epoch {
		return w.cut(cutEpoch, plimsoll.Errorf(plimsoll.CodeStale,
			"the leader has changed from epoch %d to %d; begin again with a snapshot", w.point.Epoch, view.Epoch()))
	}
	return w.cut(cutHistory, plimsoll.Errorf(plimsoll.CodeStale,
		"this gateway was behind its leader and has lost changes; begin again with a snapshot"))
}

// cut counts the end of a watch and returns its error.
func (w *watch) cut(reason string, err error) error {
	w.g.metrics.watchCut(reason)
	return err
}

// collect puts changes into the message until it is full, and reports whether it is. The changes of
// a takeover come in messages of their own.
func (w *watch) collect(view *replica.Changes) (full bool, err error) {
	whole, err := w.changes.Each(view, func(c *replica.Change) (taken bool, err error) {
		full = len(w.message.data) >= watchMessageBytes || w.message.changes > 0 && w.message.apart(c)
		if full {
			return false, nil
		}
		return true, w.take(c)
	})
	if err == nil && !whole {
		err = w.cut(cutBehind, plimsoll.Errorf(plimsoll.CodeStale,
			"this watch was read so slowly that the changes it needs are no longer kept; begin again with a snapshot"))
	}
	return full, err
}

// take puts a change into the message, if it concerns the watch.
func (w *watch) take(c *replica.Change) error {
	f, _ := c.Shared(w.derive).(*frame) // nothing else is shared with a change
	if f.err != nil || f.specOnly && !w.want.specs {
		return f.err
	}
	was, is := f.old.exists && w.want.met(&f.old), f.new.exists && w.want.met(&f.new)
	if !was && !is {
		return nil
	}
	object, err := completed(w.g.replica.Latest(), c.Kind, c.Key, c.New)
	if err != nil {
		return err
	}
	kind := pb.WatchChange_WATCH_CHANGE_UPDATED
	switch {
	case !was:
		kind = pb.WatchChange_WATCH_CHANGE_ADDED
	case !f.new.exists:
		kind, object = pb.WatchChange_WATCH_CHANGE_DELETED, c.Old
	case !is:
		kind = pb.WatchChange_WATCH_CHANGE_LEFT
	}
	w.message.add(kind, w.kind, &object, w.want.specs, c.Revision, kind == pb.WatchChange_WATCH_CHANGE_DELETED &&
		w.archives(f))
	w.message.epoch, w.message.takeover = c.Epoch, c.Takeover
	return nil
}

// archives reports whether an object that was deleted is a job that is in the archive.
func (w *watch) archives(f *frame) bool {
	rejected := f.old.state == int32(plimsoll.JobRejected) // no archive has those
	if w.kind != wire.KindJobStatus || f.old.deleted || rejected {
		return false
	}
	v, err := w.g.archiveOf(w.g.replica.Latest())
	return err == nil && v.kept()
}

// flush sends the message. Its bytes count as the request's until the caller has taken them.
func (w *watch) flush() error {
	m := &w.message
	defer m.reset()
	if w.charge != nil {
		held := 2 * len(m.data) // connect copies the message
		if w.json {
			held = answerBytes*m.changes + 6*len(m.data) // it is decoded, and rendered
		}
		if err := w.charge.hold(held); err != nil {
			return w.cut(cutNoRoom, err)
		}
		defer w.charge.release(held)
	}
	w.g.metrics.watchChanges.Add(float64(m.changes))
	return w.send(m.data)
}

// watchMessage is an encoded message of a watch. The responses of all watches have the same field
// numbers, and so have their changes; TestMessagesOfAllWatchesHaveTheSameFields compares them.
type watchMessage struct {
	data    []byte // of a pool; nil while the message is empty
	changes int
	pooled  *[]byte

	// Of the last change.
	epoch    uint64
	takeover bool
}

// apart reports whether a change may not come in the same message as those before it.
func (m *watchMessage) apart(c *replica.Change) bool {
	return c.Epoch != m.epoch || c.Takeover != m.takeover
}

// The fields of a response, of a change in it and of a point.
const (
	fieldChanges, fieldPoint, fieldSnapshotEnd     = 1, 2, 3
	fieldChange, fieldObject, fieldRevision        = 1, 2, 3
	fieldArchived                                  = 4 // of jobs
	fieldEpoch, fieldPointRevision, fieldPointPart = 1, 2, 3
)

// watchBuffers holds the buffers of messages under way. A watch has one only while it sends.
var watchBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (m *watchMessage) open() {
	if m.pooled == nil {
		m.pooled, _ = watchBuffers.Get().(*[]byte)
		m.data = (*m.pooled)[:0]
	}
}

func (m *watchMessage) reset() {
	if m.pooled != nil && cap(m.data) <= 4*watchMessageBytes {
		*m.pooled = m.data
		watchBuffers.Put(m.pooled)
	}
	*m = watchMessage{}
}

// add appends a change. The records in it are copied as the leader has encoded them.
func (m *watchMessage) add(
	change pb.WatchChange, kind wire.Kind, o *replica.Object, specs bool, revision uint64, archived bool,
) {
	m.open()
	m.changes++
	object := encodedObject{kind: kind, object: o, specs: specs}
	size := object.size()
	inner := protowire.SizeTag(fieldChange) + protowire.SizeVarint(uint64(change)) +
		protowire.SizeTag(fieldObject) + protowire.SizeBytes(size)
	if revision > 0 {
		inner += protowire.SizeTag(fieldRevision) + protowire.SizeVarint(revision)
	}
	if archived {
		inner += protowire.SizeTag(fieldArchived) + protowire.SizeVarint(1)
	}
	m.data = protowire.AppendTag(m.data, fieldChanges, protowire.BytesType)
	m.data = protowire.AppendVarint(m.data, uint64(inner))
	m.varint(fieldChange, uint64(change))
	m.data = protowire.AppendTag(m.data, fieldObject, protowire.BytesType)
	m.data = protowire.AppendVarint(m.data, uint64(size))
	m.data = object.append(m.data)
	if revision > 0 {
		m.varint(fieldRevision, revision)
	}
	if archived {
		m.varint(fieldArchived, 1)
	}
}

func (m *watchMessage) varint(field protowire.Number, value uint64) {
	m.data = protowire.AppendTag(m.data, field, protowire.VarintType)
	m.data = protowire.AppendVarint(m.data, value)
}

// end completes a message with its point.
func (m *watchMessage) end(p replica.Point, snapshotEnd bool) {
	m.open()
	m.data = protowire.AppendTag(m.data, fieldPoint, protowire.BytesType)
	fields := [...]uint64{fieldEpoch: p.Epoch, fieldPointRevision: p.Revision, fieldPointPart: uint64(p.Part)}
	size := 0
	for field, value := range fields {
		if value > 0 {
			size += protowire.SizeTag(protowire.Number(field)) + protowire.SizeVarint(value)
		}
	}
	m.data = protowire.AppendVarint(m.data, uint64(size))
	for field, value := range fields {
		if value > 0 {
			m.varint(protowire.Number(field), value)
		}
	}
	if snapshotEnd {
		m.varint(fieldSnapshotEnd, 1)
	}
}
