package gateway

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// pollTimeout bounds the wait for the answer to a poll, which the leader gives after 5 s at
	// most.
	pollTimeout = 15 * time.Second
	// firstAnswers bounds the answers with kept events that a stream is sent before the groups that
	// wait. The leader keeps as many as fit in 16.
	firstAnswers = 32
	// waitingPause is the least time between two times at which a stream is sent the groups that
	// wait: to read them costs the gateway a look at each live job of the owner.
	waitingPause = 10 * time.Second
	// maxOwnerBytes is the most that the owner of a job takes.
	maxOwnerBytes = 128
)

// requestService serves RequestEventService.
type requestService struct{ g *Gateway }

// FollowRequestEvents registers a resource manager at the leader and sends the events of its jobs.
// The leader keeps what the manager has not acknowledged, so a slow one holds up nobody: a stream
// that is not read polls no more, and the transport cuts it.
func (s requestService) FollowRequestEvents(
	ctx context.Context, req *connect.Request[pb.FollowRequestEventsRequest],
	stream *connect.ServerStream[pb.FollowRequestEventsResponse],
) error {
	if err := checkManager(req.Msg); err != nil {
		return err
	}
	defer s.g.metrics.watching("FollowRequestEvents")()
	f := requestFollow{
		g: s.g, owner: req.Msg.GetOwner(), manager: req.Msg.GetManager(), stream: uuid.NewString(), send: stream.Send,
		charge: chargeOf(ctx),
	}
	return f.run(ctx)
}

// AcknowledgeRequestEvents lets the leader forget events of a resource manager.
func (s requestService) AcknowledgeRequestEvents(
	ctx context.Context, req *connect.Request[pb.AcknowledgeRequestEventsRequest],
) (*connect.Response[pb.AcknowledgeRequestEventsResponse], error) {
	if err := checkManager(req.Msg); err != nil {
		return nil, err
	}
	if req.Msg.GetStore() == "" {
		return nil, plimsoll.Invalid("store", "is missing; give the one that came with the events")
	}
	reply, err := s.g.do(ctx, &pb.Command{
		Kind: &pb.Command_AcknowledgeRequestEvents{AcknowledgeRequestEvents: req.Msg},
	})
	if err != nil {
		return nil, err
	}
	if reply.GetAcknowledgeRequestEvents() == nil {
		return nil, olderLeader("keep events for resource managers")
	}
	return connect.NewResponse(reply.GetAcknowledgeRequestEvents()), nil
}

// checkManager checks the name of a resource manager and the owner of its jobs.
func checkManager(m interface {
	GetManager() string
	GetOwner() string
},
) error {
	if len(m.GetOwner()) > maxOwnerBytes || strings.ContainsAny(m.GetOwner(), "\n\x00") {
		return plimsoll.Invalid("owner", "is longer than %d bytes or has more than one line; no job has such an owner",
			maxOwnerBytes)
	}
	return plimsoll.ValidateID("manager", m.GetManager()) //nolint:wrapcheck // it names the field
}

// requestFollow is one stream of events for a resource manager.
type requestFollow struct {
	g              *Gateway
	owner, manager string
	stream         string // names the stream to the leader
	send           func(*pb.FollowRequestEventsResponse) error
	charge         *charge

	after    uint64    // number of the last event that was sent
	owed     bool      // events were lost since the groups that wait were sent
	surveyed time.Time // instant at which they were sent
}

// run sends the events until the stream ends.
func (f *requestFollow) run(ctx context.Context) error {
	reply, err := f.step(ctx, true)
	for n := 0; err == nil && reply.GetPollRequestEvents().GetMore() && n < firstAnswers; n++ {
		reply, err = f.step(ctx, false)
	}
	if err != nil {
		return err
	}
	snapshot, err := f.g.after(ctx, reply)
	if err != nil {
		return unfollowed(err)
	}
	if err := f.survey(ctx, snapshot); err != nil {
		return err
	}
	for {
		reply, err := f.step(ctx, false)
		if err == nil && f.owed && time.Since(f.surveyed) >= waitingPause {
			err = f.survey(ctx, f.g.replica.Latest())
		}
		if err == nil && !reply.GetPollRequestEvents().GetMore() {
			err = pause(ctx, watchPause)
		}
		if err != nil {
			return err
		}
	}
}

// step asks the leader for events, sends them and returns the answer. The first message of a stream
// is sent without any too.
func (f *requestFollow) step(ctx context.Context, begin bool) (reply *pb.Reply, err error) {
	bounded, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	reply, err = f.g.replica.Do(bounded, &pb.Command{Kind: &pb.Command_PollRequestEvents{
		PollRequestEvents: &pb.PollRequestEvents{
			Manager: f.manager, Owner: f.owner, Stream: f.stream, Begin: begin, After: f.after,
		},
	}})
	switch polled := reply.GetPollRequestEvents(); {
	case err != nil && ctx.Err() != nil:
		return nil, callerGone(ctx)
	case err != nil:
		return nil, unfollowed(err)
	case polled == nil:
		return nil, olderLeader("send events to resource managers")
	case len(polled.GetEvents()) == 0 && polled.GetLost() == 0 && !begin:
		return reply, nil
	default:
		return reply, f.forward(polled)
	}
}

// unfollowed returns the error of a stream that the leader did not answer. To poll has no effect
// that a repetition would not have, so nothing is unknown.
func unfollowed(err error) error {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeOutcomeUnknown, plimsoll.CodeDeadline:
		return &plimsoll.Error{
			Code: plimsoll.CodeUnavailable, Msg: "the leader does not answer; follow the events again", Err: err,
		}
	}
	return err
}

// forward sends the events of an answer.
func (f *requestFollow) forward(polled *pb.PolledRequestEvents) error {
	events := polled.GetEvents()
	if n := len(events); n > 0 {
		f.after = events[n-1].GetSequence()
	}
	f.owed = f.owed || polled.GetLost() > 0
	m := &pb.FollowRequestEventsResponse{Store: polled.GetStore(), Events: events, Lost: polled.GetLost()}
	size := 0
	for _, e := range events {
		ev := e.GetEvent()
		size += answerBytes + len(e.GetOwner()) + len(ev.GetObject()) + len(ev.GetReference()) + len(ev.GetMessage())
	}
	return f.flush(m, size)
}

// survey sends the groups of live jobs that wait. Each job is charged to the request before it is
// decoded, and until its groups are sent.
func (f *requestFollow) survey(ctx context.Context, snapshot *replica.Snapshot) error {
	want := criteria{owner: f.owner}
	for state := range plimsoll.JobState(plimsoll.NumJobStates) {
		if state != 0 && !state.Ended() {
			want.states = append(want.states, int32(state))
		}
	}
	deadline := time.Now().Add(f.g.cfg.AnswerTimeout)
	m, held, looked := &pb.FollowRequestEventsResponse{Revision: snapshot.Revision()}, 0, 0
	defer func() { f.release(held) }()
	for id, object := range want.objects(snapshot, wire.KindJobStatus) {
		if looked++; looked%lookEvery == 0 && ctx.Err() != nil {
			return callerGone(ctx)
		}
		met, err := want.meets(snapshot, wire.KindJobStatus, id, &object)
		if err != nil {
			return err
		}
		if !met {
			continue
		}
		size, waiting, err := f.waitingOf(id, object.Value)
		held += size
		if err != nil {
			return err
		}
		m.Waiting = append(m.Waiting, waiting...)
		if held < 4*watchMessageBytes {
			continue
		}
		if err := f.send(m); err != nil {
			return err
		}
		f.release(held)
		m, held = &pb.FollowRequestEventsResponse{Revision: snapshot.Revision()}, 0
		if time.Now().After(deadline) {
			return plimsoll.Errorf(plimsoll.CodeExhausted,
				"the groups that wait were not read within %s; read faster", f.g.cfg.AnswerTimeout)
		}
	}
	m.WaitingEnd = true
	f.owed, f.surveyed = false, time.Now()
	return f.send(m)
}

// waitingOf returns the groups of a job that wait, and the bytes that they are charged: those of
// the decoded job, which they keep, and of their encoded form.
func (f *requestFollow) waitingOf(id string, record []byte) (held int, waiting []*pb.WaitingGroup, err error) {
	whole := answerBytes + 4*len(record)
	if err := f.charge.holdAnswer(whole); err != nil {
		return 0, nil, err
	}
	var job pb.JobStatus
	if err := decode(wire.KindJobStatus, id, record, &job); err != nil {
		return whole, nil, err
	}
	for _, g := range job.GetGroups() {
		if g.GetWaitCode() != 0 {
			waiting = append(waiting, &pb.WaitingGroup{Job: job.GetId(), Owner: job.GetOwner(), Group: g})
		}
	}
	if len(waiting) == 0 {
		f.release(whole)
		return 0, nil, nil
	}
	// Each group is told with the id and the owner of its job.
	more := len(waiting) * (answerBytes + 2*len(id) + 2*len(job.GetOwner()))
	if err := f.charge.holdAnswer(more); err != nil {
		return whole, nil, err
	}
	return whole + more, waiting, nil
}

// flush sends a message, which is charged to the request while it is sent.
func (f *requestFollow) flush(m *pb.FollowRequestEventsResponse, size int) error {
	held := answerBytes + 2*size // connect encodes it
	if err := f.charge.holdAnswer(held); err != nil {
		return err
	}
	defer f.release(held)
	return f.send(m)
}

// release gives back bytes of the charge.
func (f *requestFollow) release(held int) {
	if f.charge != nil { // as in holding
		f.charge.release(held)
	}
}
