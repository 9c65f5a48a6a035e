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
	maxReplies int
	proof      bool // a sync is acknowledged only after a proof of leadership

	phase    phase
	welcome  *pb.ReplicateWelcome
	snapshot *snapshotReader // the snapshot under way; nil if the copy was resumed
	cursor   uint64          // position of the next batch to send

	replies []placedReply // unsent, ordered by position
	// waiting, proving and proven are the syncs in their three stages; proofRuns is true while
	// proving is under proof. A sync waits until the one before it has been acknowledged. A newer
	// sync replaces the waiting one. So there are at most three, however many the gateway sends,
	// and none waits for ever.
	waiting, proving, proven syncPoint
	proofRuns                bool

	err error // cause of the session's end
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

// outgoing is one message for the gateway. response builds a part of a snapshot, without the lock.
type outgoing struct {
	message *pb.ReplicateResponse
	part    *snapshotReader
}

func (o outgoing) response() *pb.ReplicateResponse {
	if o.part != nil {
		return o.part.next()
	}
	return o.message
}

// hello opens the session. latest is the leader's snapshot at the end of the log.
func (s *session) hello(h *pb.ReplicateHello, latest *Snapshot) error {
	switch {
	case h == nil:
		return plimsoll.Invalid("hello", "the first message of a replication stream must be a hello")
	case h.Gateway == "":
		return plimsoll.Invalid("hello.gateway", "is empty; a gateway gives its id")
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
	s.phase = phaseWelcome
	s.welcome = &pb.ReplicateWelcome{Epoch: latest.epoch, InstanceUuid: latest.instance}
	if position, known := s.log.after(h.Revision); known && h.Epoch == latest.epoch {
		s.welcome.Resumed = true
		s.cursor = position
		return nil
	}
	s.snapshot = newSnapshotReader(latest)
	s.cursor = s.log.end()
	return nil
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
		s.end(&plimsoll.Error{
			Code: plimsoll.CodeStale, Op: "prove leadership",
			Msg: "this process may no longer lead; connect again", Err: err,
		})
		return
	}
	s.proven, s.proving = s.proving, syncPoint{}
}

// reply queues the answer to a command behind everything that is published. Too many unsent replies
// end the session.
func (s *session) reply(r *pb.Reply) {
	if s.phase == phaseEnded {
		return
	}
	if len(s.replies) >= s.maxReplies {
		s.end(
			plimsoll.Errorf(
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
	s.replies, s.snapshot = nil, nil
	s.waiting, s.proving, s.proven = syncPoint{}, syncPoint{}, syncPoint{}
}

// next returns the next message. ok is false if there is none yet or the session has ended.
func (s *session) next() (out outgoing, ok bool) {
	switch s.phase {
	case phaseWelcome:
		s.phase = phaseSnapshot
		return outgoing{message: &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Welcome{Welcome: s.welcome}}}, true
	case phaseSnapshot:
		if s.snapshot != nil && !s.snapshot.done {
			return outgoing{part: s.snapshot}, true
		}
		s.phase, s.snapshot = phaseLive, nil
		return s.nextLive()
	case phaseLive:
		return s.nextLive()
	}
	return outgoing{}, false
}

func (s *session) nextLive() (outgoing, bool) {
	if s.proven.id != 0 && s.proven.position <= s.cursor {
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
		s.end(plimsoll.Errorf(plimsoll.CodeExhausted, "the gateway fell behind by more than the %d MiB of batches that are kept; connect again for a snapshot",
			s.log.limit>>20))
		return outgoing{}, false
	}
	s.cursor++
	return outgoing{message: &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Batch{Batch: data}}}, true
}
