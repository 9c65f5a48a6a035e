package replica

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// session is the leader's end of one stream as a pure step function. Its inputs are hello, sync and
// the reply to a command; next returns the next message for the gateway. Its owner calls the
// session and the shared log under one lock.
//
// The messages are the welcome, the snapshot if the copy cannot be resumed, then batches in order.
// A reply or an acknowledgement has a position in the log and is sent as soon as the cursor has
// reached it: behind every batch that was published when it came, and before later ones.
type session struct {
	log        *batchLog
	transfers  *transfers
	maxReplies int
	proof      bool // a sync is acknowledged only after a proof of leadership
	// relayed: the proof is the parent's acknowledgement, and the log then holds all that the
	// parent sent in front of it. So the acknowledgement takes its place when the proof ends.
	relayed bool
	holds   *filter  // what the source holds; nil: everything
	recent  *decoded // shared by the streams with filters
	version string   // of this program

	phase   phase
	welcome *pb.ReplicateWelcome
	filter  *filter    // what the stream carries; nil: everything
	narrow  *narrowing // nil without a filter
	// progress is the snapshot under way. It is nil if the copy was resumed, while the session
	// waits for its turn, and once the snapshot was sent.
	progress *progress
	cursor   uint64 // position of the next batch to send
	onAdmit  func() // called when the session's turn has come; may be nil

	closing closing
	replies []placedReply // unsent, ordered by position
	// waiting, proving and proven are the syncs in their three stages; proofRuns is true while
	// proving is under proof. A sync waits until the one before it has been acknowledged. A newer
	// sync replaces the waiting one. So there are at most three, however many the gateway sends,
	// and none waits for ever.
	waiting, proving, proven syncPoint
	proofRuns                bool

	err    error     // cause of the session's end
	reason streamEnd // of err for the metrics; 0: it is found at the stream's end
}

// phase is the state of a stream. A session has all of them; a mirror has phaseHello until the
// welcome comes, then phaseSnapshot or phaseLive.
type phase uint8

const (
	phaseHello phase = iota // the gateway has not sent its hello
	phaseWelcome
	phaseSnapshot
	phaseLive
	phaseEnded
)

type placedReply struct {
	position uint64
	reply    *pb.Reply
}

// syncPoint is a sync with the position and the revision of the log at its arrival. An id of 0
// stands for none.
type syncPoint struct {
	id       uint64
	position uint64
	revision uint64
}

// outgoing is one message for the gateway. response builds a part of a snapshot, or cuts a batch
// down to a filter, without the lock.
type outgoing struct {
	message *pb.ReplicateResponse
	part    *progress
	batch   []byte // encoded
	narrow  *narrowing
}

// response returns the message; nil if a filter leaves nothing of it.
func (o outgoing) response() (*pb.ReplicateResponse, error) {
	switch {
	case o.part != nil:
		return o.part.message()
	case o.batch == nil:
		return o.message, nil
	case o.narrow == nil:
		return batchMessage(o.batch), nil
	}
	left, err := o.narrow.batch(o.batch)
	if left == nil {
		return nil, err
	}
	return batchMessage(left), nil
}

func batchMessage(data []byte) *pb.ReplicateResponse {
	return &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Batch{Batch: data}}
}

// hello opens the session. latest is the leader's snapshot at the end of the log.
func (s *session) hello(h *pb.ReplicateHello, latest *Snapshot) error {
	switch {
	case h == nil:
		return plimsoll.Invalid("hello", "the first message of a replication stream must be a hello")
	case validateGateway("hello.gateway", h.Gateway) != nil:
		return validateGateway("hello.gateway", h.Gateway)
	case s.phase != phaseHello:
		return plimsoll.Invalid("hello", "came twice; open another stream to start again")
	case h.Epoch > latest.epoch:
		return plimsoll.Errorf(plimsoll.CodeStale, "the gateway has seen epoch %d and this leader is of epoch %d; connect to the newer leader",
			h.Epoch, latest.epoch)
	case h.Epoch == latest.epoch && h.Revision > latest.revision:
		return plimsoll.Errorf(plimsoll.CodeStale,
			"the gateway holds revision %d of epoch %d and this leader only %d; restart the gateway if the store was restored from a backup",
			h.Revision, h.Epoch, latest.revision)
	}
	version, err := agree(h, s.version)
	if err != nil {
		return err
	}
	if s.filter, err = readFilter(h.Filter); err != nil {
		return err
	}
	if !s.holds.covers(s.filter) {
		return plimsoll.Errorf(plimsoll.CodeConflict,
			"this relay holds a part of the state only, and the gateway asks for more; let it follow the leader, or a relay without a filter")
	}
	s.filter = s.filter.known(version)
	welcome := &pb.ReplicateWelcome{
		Epoch: latest.epoch, LeaderUuid: latest.leader, InstanceUuid: latest.instance, Protocol: version,
		Version: s.version,
	}
	position, known := s.log.after(h.Revision)
	if known && h.Epoch == latest.epoch && s.filter.ofNode() == "" {
		welcome.Resumed = true
		s.cursor, s.narrow = position, newNarrowing(s.filter, nil, s.recent)
	} else if err := s.transfers.ask(s); err != nil {
		return err
	}
	s.phase, s.welcome = phaseWelcome, welcome
	return nil
}

// begin starts the snapshot that transfers has admitted. cursor is the position behind it.
func (s *session) begin(t *transfer, cursor uint64) {
	t.users++
	s.progress = &progress{transfer: t, admitted: true, count: s.transfers.count}
	s.cursor, s.narrow = cursor, newNarrowing(s.filter, t.snapshot, s.recent)
}

// wake tells the session's owner that its snapshot may be sent.
func (s *session) wake() {
	if s.onAdmit != nil {
		s.onAdmit()
	}
}

// sync notes a sync request.
func (s *session) sync(id uint64) error {
	if s.phase == phaseHello || id == 0 {
		return plimsoll.Invalid("sync", "needs an id above 0 and a hello before it")
	}
	s.waiting = syncPoint{id: id, position: s.log.end(), revision: s.log.revision()}
	s.advanceSync()
	return nil
}

func (s *session) advanceSync() {
	if s.waiting.id == 0 || s.proving.id != 0 || s.proven.id != 0 {
		return
	}
	s.proving, s.waiting = s.waiting, syncPoint{}
	if !s.proof {
		s.proven, s.proving = s.proving, syncPoint{}
	}
}

// takeProof reports whether a proof of leadership is to begin now. The caller reports its outcome
// with proofDone.
func (s *session) takeProof() bool {
	if s.proving.id == 0 || s.proofRuns {
		return false
	}
	s.proofRuns = true
	return true
}

// proofDone notes the outcome of the proof that takeProof has started.
func (s *session) proofDone(err error) {
	s.proofRuns = false
	if err != nil {
		s.endFor(endProof, &plimsoll.Error{
			Code: plimsoll.CodeStale, Op: "prove leadership",
			Msg: "this process may no longer lead; connect again", Err: err,
		})
		return
	}
	s.proven, s.proving = s.proving, syncPoint{}
	if s.relayed {
		s.proven.position, s.proven.revision = s.log.end(), s.log.revision()
	}
}

// reply queues the answer to a command behind everything that is published. Too many unsent replies
// end the session.
func (s *session) reply(r *pb.Reply) {
	if s.phase == phaseEnded {
		return
	}
	if len(s.replies) >= s.maxReplies {
		s.endFor(
			endReplies, plimsoll.Errorf(
				plimsoll.CodeExhausted, "%d replies wait because the gateway does not read its stream; connect again",
				s.maxReplies,
			),
		)
		return
	}
	s.replies = append(s.replies, placedReply{s.log.end(), r})
}

// end ends the session. Unsent messages are dropped.
func (s *session) end(err error) {
	if s.phase == phaseEnded {
		return
	}
	s.phase, s.err = phaseEnded, err
	s.replies = nil
	s.transfers.leave(s)
	s.waiting, s.proving, s.proven = syncPoint{}, syncPoint{}, syncPoint{}
}

// endFor ends the session for a reason that the metrics name.
func (s *session) endFor(reason streamEnd, err error) {
	if s.phase != phaseEnded {
		s.reason = reason
	}
	s.end(err)
}

// next returns the next message. ok is false if there is none yet or the session has ended.
func (s *session) next() (out outgoing, ok bool) {
	switch s.phase {
	case phaseWelcome:
		s.phase = phaseSnapshot
		return outgoing{message: &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Welcome{Welcome: s.welcome}}}, true
	case phaseSnapshot:
		if !s.welcome.Resumed {
			if s.progress == nil {
				return outgoing{}, false // it waits for its turn
			}
			if !s.progress.done {
				return outgoing{part: s.progress}, true
			}
			s.transfers.leave(s)
		}
		s.phase = phaseLive
		return s.nextLive()
	case phaseLive:
		return s.nextLive()
	}
	return outgoing{}, false
}

func (s *session) nextLive() (outgoing, bool) {
	if s.closing == closingDue && s.welcome.GetProtocol() >= closingProtocol {
		s.closing = closingTold
		return outgoing{message: closingMessage()}, true
	}
	acknowledges := s.proven.id != 0 && s.proven.position <= s.cursor
	if acknowledges || len(s.replies) > 0 && s.replies[0].position <= s.cursor {
		if message := s.narrow.flush(); message != nil {
			return outgoing{message: message}, true
		}
	}
	if acknowledges {
		ack := &pb.ReplicateSyncAck{Id: s.proven.id, Epoch: s.welcome.Epoch, Revision: s.proven.revision}
		s.proven = syncPoint{}
		s.advanceSync()
		return outgoing{message: &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_SyncAck{SyncAck: ack}}}, true
	}
	if len(s.replies) > 0 && s.replies[0].position <= s.cursor {
		reply := s.replies[0].reply
		s.replies[0] = placedReply{}
		if s.replies = s.replies[1:]; len(s.replies) == 0 {
			s.replies = nil
		}
		return outgoing{message: &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Reply{Reply: reply}}}, true
	}
	if s.cursor == s.log.end() {
		return outgoing{}, false
	}
	data, ok := s.log.at(s.cursor)
	if !ok {
		s.endFor(endBehind, plimsoll.Errorf(plimsoll.CodeExhausted, "the gateway fell behind by more than the %d MiB of batches that are kept; connect again for a snapshot",
			s.log.limit>>20))
		return outgoing{}, false
	}
	s.cursor++
	return outgoing{batch: data, narrow: s.narrow}, true
}
