package replica

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// transfer is one snapshot on its way to any number of streams. Each part is encoded once, for the
// first stream that needs it, and kept for the others within a bound of bytes. A stream that needs
// a part which is no longer kept encodes it for itself.
type transfer struct {
	snapshot *Snapshot
	filter   *filter
	users    int // streams that read it; guarded by the lock of the source

	mu struct {
		sync.Mutex
		reader *snapshotReader
		limit  int      // bound on kept
		marks  []mark   // where each part that was encoded begins
		parts  [][]byte // Invariant: as long as marks; nil: no longer kept
		first  int      // parts[:first] are no longer kept
		kept   int      // bytes of parts
		whole  bool     // the last part has been encoded
	}
}

func newTransfer(s *Snapshot, f *filter, limit int) *transfer {
	t := &transfer{snapshot: s, filter: f}
	t.mu.limit = limit
	return t
}

// part returns the message with part number i, encoded; nil if there are only i parts. A stream
// reads parts in order. fresh reports that this call has encoded it.
func (t *transfer) part(i int) (data []byte, fresh bool, err error) {
	data, from, fresh, err := t.kept(i)
	if from == nil {
		return data, fresh, err
	}
	data, err = encodePart(readFrom(t.snapshot, t.filter, *from).next())
	return data, true, err
}

// kept returns part number i if it is kept or is the next to be encoded; otherwise from is where it
// begins. Streams at the same place wait for the one that encodes.
func (t *transfer) kept(i int) (data []byte, from *mark, fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i < t.mu.first {
		return nil, &t.mu.marks[i], false, nil
	}
	if i < len(t.mu.parts) {
		return t.mu.parts[i], nil, false, nil
	}
	if t.mu.whole {
		return nil, nil, false, nil
	}
	if t.mu.reader == nil {
		t.mu.reader = newSnapshotReader(t.snapshot, t.filter)
	}
	at := t.mu.reader.mark()
	part := t.mu.reader.next()
	if part == nil {
		t.mu.whole, t.mu.reader = true, nil
		return nil, nil, false, nil
	}
	if data, err = encodePart(part); err != nil {
		return nil, nil, false, err
	}
	t.mu.marks, t.mu.parts = append(t.mu.marks, at), append(t.mu.parts, data)
	t.mu.kept += len(data)
	t.drop()
	return data, nil, true, nil
}

// drop forgets the oldest parts beyond the limit. The caller holds mu.
func (t *transfer) drop() {
	for t.mu.kept > t.mu.limit && t.mu.first < len(t.mu.parts) {
		t.mu.kept -= len(t.mu.parts[t.mu.first])
		t.mu.parts[t.mu.first] = nil
		t.mu.first++
	}
}

// forget gives up all parts that are kept, and keeps none from then on.
func (t *transfer) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.limit = 0
	t.drop()
}

func (t *transfer) bytes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.kept
}

// encodePart returns a whole message of a stream with a part of a snapshot.
func encodePart(part *pb.ReplicateSnapshot) ([]byte, error) {
	const field = 2 // of ReplicateResponse
	size := proto.Size(part)
	data := protowire.AppendTag(make([]byte, 0, size+16), field, protowire.BytesType)
	data = protowire.AppendVarint(data, uint64(size))
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(data, part)
	if err != nil {
		return nil, fmt.Errorf("encode a part of a snapshot: %w", err)
	}
	return data, nil
}

// encodedMessage returns a message whose encoding is data.
func encodedMessage(data []byte) *pb.ReplicateResponse {
	m := &pb.ReplicateResponse{}
	m.ProtoReflect().SetUnknown(data) // which are copied as they are
	return m
}

// progress is how far one stream is in a transfer. It belongs to the stream's sender.
type progress struct {
	transfer *transfer
	next     int
	done     bool // the end of the snapshot was returned
	admitted bool // it counts as one of transfers.sending; guarded by the lock of the source
	count    func(fresh bool)
}

// message returns the next part, or the end of the snapshot. It must not be called once done is
// set.
func (p *progress) message() (*pb.ReplicateResponse, error) {
	data, fresh, err := p.transfer.part(p.next)
	if err != nil {
		return nil, err
	}
	if data != nil {
		p.next++
		p.count(fresh)
		return encodedMessage(data), nil
	}
	p.done = true
	return snapshotEnd(p.transfer.snapshot), nil
}

func snapshotEnd(s *Snapshot) *pb.ReplicateResponse {
	return &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_SnapshotEnd{SnapshotEnd: &pb.ReplicateSnapshotEnd{
		Revision: s.revision, Time: s.time,
	}}}
}

// transfers admits the streams that need a snapshot, a few at a time and in their order. Streams
// without a filter share the newest transfer while the log holds all that came after it. Its owner
// calls it under the lock of the source.
type transfers struct {
	log         *batchLog
	latest      func() *Snapshot
	most        int // bound on sending
	mostWaiting int // bound on waiting
	limit       int // bound on the bytes of parts that are kept

	sending int
	waiting []*session
	shared  *transfer // nil if no stream reads one
	begun   uint64    // streams that were admitted
	joined  uint64    // of these, streams that joined a transfer that was under way
	refused uint64    // streams for which there was no place to wait

	fresh, reused atomic.Uint64 // parts that were encoded, and parts that were sent once more
}

// count counts a part that a stream is sent.
func (t *transfers) count(fresh bool) {
	if fresh {
		t.fresh.Add(1)
		return
	}
	t.reused.Add(1)
}

// ask admits a session, or has it wait. If too many wait already, the session is refused.
func (t *transfers) ask(s *session) error {
	if t.sending < t.most && len(t.waiting) == 0 {
		t.admit(s)
		return nil
	}
	if len(t.waiting) >= t.mostWaiting {
		t.refused++
		return plimsoll.Errorf(plimsoll.CodeExhausted,
			"%d gateways are sent a snapshot and %d wait for one already; connect again later", t.sending, t.mostWaiting)
	}
	t.waiting = append(t.waiting, s)
	return nil
}

func (t *transfers) admit(s *session) {
	t.sending++
	t.begun++
	latest := t.latest()
	if s.filter != nil {
		s.begin(newTransfer(latest, s.filter, 0), t.log.end())
		return
	}
	if position, ok := t.joinable(); ok {
		t.joined++
		s.begin(t.shared, position)
		return
	}
	if t.shared != nil {
		t.shared.forget()
	}
	t.shared = newTransfer(latest, nil, t.limit)
	s.begin(t.shared, t.log.end())
}

// joinable returns the position behind the shared snapshot. ok is false if there is none, or if so
// much came after it that a stream would soon fall out of the log.
func (t *transfers) joinable() (position uint64, ok bool) {
	if t.shared == nil {
		return 0, false
	}
	position, ok = t.log.after(t.shared.snapshot.revision)
	return position, ok && t.log.bytesAfter(position) <= t.log.limit/2
}

// leave is called when a session needs no snapshot any more. It admits the next.
func (t *transfers) leave(s *session) {
	if s.progress == nil {
		if i := slices.Index(t.waiting, s); i >= 0 {
			t.waiting = slices.Delete(t.waiting, i, i+1)
		}
		return
	}
	of := s.progress.transfer
	t.yield(s)
	s.progress = nil
	if of.users--; of.users == 0 && of == t.shared {
		of.forget()
		t.shared = nil
	}
}

// yield takes the turn of a session whose gateway reads too slowly, and admits the next. The
// session's snapshot goes on beside the others.
func (t *transfers) yield(s *session) {
	if s.progress == nil || !s.progress.admitted {
		return
	}
	s.progress.admitted = false
	t.sending--
	for t.sending < t.most && len(t.waiting) > 0 {
		next := t.waiting[0]
		t.waiting = slices.Delete(t.waiting, 0, 1)
		t.admit(next)
		next.wake()
	}
}
