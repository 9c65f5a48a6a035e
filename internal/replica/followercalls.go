package replica

import (
	"context"
	"errors"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Latest returns the newest snapshot; nil before the first. It may be behind the leader by any
// amount.
func (f *Follower) Latest() *Snapshot { return f.latest.Load() }

// Tables returns the copy itself, for a caller that goes on with it when Run has returned; nil:
// there is none.
func (f *Follower) Tables() *Tables { return f.mirror.tables }

// Changes returns the newest view of the history; nil before the first snapshot. It holds every
// change behind the snapshot with which the copy began, as far as HistoryBytes allow. A view that
// is taken after a snapshot is at the snapshot's revision or a later one.
func (f *Follower) Changes() *Changes { return f.history.Load() }

// Connected reports whether the copy follows a leader now.
func (f *Follower) Connected() bool {
	select {
	case <-f.liveNow():
		return true
	default:
		return false
	}
}

func (f *Follower) liveNow() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.live
}

// Ready returns nil once the copy follows a leader.
func (f *Follower) Ready(ctx context.Context) error {
	select {
	case <-f.liveNow():
		return nil
	case <-ctx.Done():
		at := ""
		if f.config.Finder == nil {
			at = " at " + f.config.Leader
		}
		return plimsoll.Errorf(
			plimsoll.CodeUnavailable, "this gateway has not reached the leader%s yet; try again", at,
		)
	}
}

// Watch returns a channel of capacity one. It gets a signal after a record with that key has
// changed and Latest shows the change; several changes may give one signal. For wire.KindPolicy and
// KindEvents the key is empty, and the signal stands for any policy, or any event. Tasks give none:
// ReadChanges is for them. After each (re)connection every channel gets one. To miss no change, a
// caller calls Watch first and reads then. It calls cancel at the end.
func (f *Follower) Watch(kind wire.Kind, key string) (changed <-chan struct{}, cancel func()) {
	return f.watches.add(kind, key)
}

// ReadChanges returns a reader of the changes of a part of the objects. It is signalled behind
// Latest and Changes show them, and after each (re)connection. One whose caller needs a recent
// position, to resume from it, has a point.
func (f *Follower) ReadChanges(part Part, pointed bool) *ChangeReader {
	return f.readers.Read(part, f.Changes, pointed)
}

// Barrier returns a snapshot that holds everything that was committed when the call began. It costs
// one round trip to the leader, shared by all readers that wait at the same time. Without a leader
// it fails at once with CodeUnavailable; it never returns a snapshot that may be stale. A barrier
// that times out makes the follower check its connection.
func (f *Follower) Barrier(ctx context.Context) (*Snapshot, error) {
	r, err := f.join()
	if err != nil {
		return nil, err
	}
	select {
	case <-r.done:
		return r.snapshot, r.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			notify(f.suspect)
		}
		return nil, ended(ctx, "the leader did not confirm in time that this gateway's copy is fresh; try again")
	}
}

// join joins the next round. While another one is under way nobody is woken: its acknowledgement
// sends the next.
func (f *Follower) join() (*round, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.mu.pending.join()
	if err == nil && f.mu.pending.inFlight == nil {
		notify(f.wake)
	}
	return r, err
}

// Do sends a command to the leader and returns its reply. It sets the id of the command. When it
// returns, Latest shows the command's effect. A refusal by the leader is returned as an error
// beside the reply. CodeUnavailable means that the command was not sent, because the gateway is not
// connected. CodeOutcomeUnknown means that it was sent and the reply has not come.
func (f *Follower) Do(ctx context.Context, command *pb.Command) (*pb.Reply, error) {
	c, err := f.addCall(command)
	if err != nil {
		return nil, err
	}
	notify(f.wake)
	select {
	case <-c.done:
	case <-ctx.Done():
		if f.dropCall(c) {
			return nil, &plimsoll.Error{
				Code: plimsoll.CodeOutcomeUnknown, Err: context.Cause(ctx),
				Msg: "the leader has not replied: the outcome is not known; ask again",
			}
		}
		return nil, ended(ctx, "the command was not sent; try again")
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.reply, wire.ErrorFromProto(c.reply.GetError())
}

func (f *Follower) addCall(command *pb.Command) (*call, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.pending.add(command)
}

func (f *Follower) dropCall(c *call) (sent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.pending.drop(c)
}

// ended makes a *plimsoll.Error of the end of a caller's context.
func ended(ctx context.Context, msg string) error {
	code := plimsoll.CodeCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = plimsoll.CodeDeadline
	}
	return &plimsoll.Error{Code: code, Msg: msg, Err: context.Cause(ctx)}
}
