package executor

import (
	"context"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// watchChunk is the largest number of attempts in one message of a watch.
const watchChunk = 256

// service answers SupervisorService.
type service struct{ s *Supervisor }

// watcher collects changes until its stream takes them. Several changes of one attempt count as
// one.
type watcher struct {
	dirty map[attemptKey]struct{} // guarded by Supervisor.mu
	wake  chan struct{}           // capacity 1
}

// changed notifies the watchers of a change; it needs mu.
func (s *Supervisor) changed(a *attempt) {
	a.hidden = false
	for w := range s.watchers {
		w.dirty[a.key] = struct{}{}
		select {
		case w.wake <- struct{}{}:
		default: // a wake-up is due already
		}
	}
}

// watch begins to collect changes, with all present attempts as the first.
func (s *Supervisor) watch() *watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watcher{dirty: map[attemptKey]struct{}{}, wake: make(chan struct{}, 1)}
	for key := range s.attempts {
		w.dirty[key] = struct{}{}
	}
	s.watchers[w] = struct{}{}
	s.unwatchedSince = time.Time{}
	return w
}

func (s *Supervisor) unwatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
	if len(s.watchers) == 0 {
		s.unwatchedSince = time.Now()
	}
}

// take returns the present status of the changed attempts, in the order of their names. Forgotten
// and hidden attempts are left out.
func (s *Supervisor) take(w *watcher) []*pb.AttemptStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*pb.AttemptStatus
	for key := range w.dirty {
		if a := s.attempts[key]; a != nil && !a.hidden {
			all = append(all, statusToProto(&a.status))
		}
	}
	clear(w.dirty)
	slices.SortFunc(all, func(a, b *pb.AttemptStatus) int {
		if c := strings.Compare(a.GetTask(), b.GetTask()); c != 0 {
			return c
		}
		return int(a.GetAttempt()) - int(b.GetAttempt())
	})
	return all
}

// StartAttempt implements the service.
func (v *service) StartAttempt(
	ctx context.Context, r *connect.Request[pb.StartAttemptRequest],
) (*connect.Response[pb.StartAttemptResponse], error) {
	m := r.Msg
	req := StartRequest{
		Task: m.GetTask(), ID: m.GetId(), Attempt: m.GetAttempt(), Job: m.GetJob(), Node: m.GetNode(),
		Spec: wire.GroupSpecFromProto(m.GetSpec()), NoCgroup: m.GetCgroup() == "", Owner: m.GetOwner(),
		Pids: m.GetPids(), TasksMemory: m.GetTasksMemory(),
	}
	var err error
	if req.Users, err = usersFromProto(m.GetUsers()); err != nil {
		return nil, wire.ConnectError(err)
	}
	if want := AttemptDir(v.s.cfg.Dir, req.Task, req.Attempt); m.GetDir() != want {
		return nil, wire.ConnectError(
			plimsoll.Invalid("dir", "%q is not the attempt's directory, %s", m.GetDir(), want),
		)
	}
	if want := CgroupName(req.Task, req.Attempt); m.GetCgroup() != "" && m.GetCgroup() != want {
		return nil, wire.ConnectError(
			plimsoll.Invalid("cgroup", "%q is not the attempt's control group, %s", m.GetCgroup(), want),
		)
	}
	status, err := v.s.startAttempt(ctx, &req)
	if err != nil {
		return nil, v.answer("start", err)
	}
	return connect.NewResponse(&pb.StartAttemptResponse{Status: statusToProto(&status)}), nil
}

// StopAttempt implements the service.
func (v *service) StopAttempt(
	_ context.Context, r *connect.Request[pb.StopAttemptRequest],
) (*connect.Response[pb.StopAttemptResponse], error) {
	m := r.Msg
	why := stopRequest{result: wire.EnumFromProto[plimsoll.TaskResult](m.GetResult()), message: m.GetMessage()}
	if err := validStop(why.result); err != nil {
		return nil, wire.ConnectError(err)
	}
	if err := v.s.stopAttempt(
		attemptKey{m.GetTask(), m.GetAttempt()}, time.Duration(m.GetGraceNanos()), why,
	); err != nil {
		return nil, v.answer("stop", err)
	}
	return connect.NewResponse(&pb.StopAttemptResponse{}), nil
}

// WatchAttempts implements the service.
func (v *service) WatchAttempts(
	ctx context.Context, _ *connect.Request[pb.WatchAttemptsRequest],
	out *connect.ServerStream[pb.WatchAttemptsResponse],
) error {
	w := v.s.watch()
	defer v.s.unwatch(w)
	first := true
	for {
		all := v.s.take(w)
		for chunk := range slices.Chunk(all, watchChunk) {
			if err := out.Send(&pb.WatchAttemptsResponse{Attempts: chunk}); err != nil {
				return err
			}
		}
		if first {
			if err := out.Send(&pb.WatchAttemptsResponse{SnapshotEnd: true}); err != nil {
				return err
			}
			first = false
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return wire.ConnectError(ctx.Err())
		case <-v.s.stopping:
			return wire.ConnectError(errStopping())
		}
	}
}

// ForgetAttempt implements the service.
func (v *service) ForgetAttempt(
	_ context.Context, r *connect.Request[pb.ForgetAttemptRequest],
) (*connect.Response[pb.ForgetAttemptResponse], error) {
	if err := v.s.forget(attemptKey{r.Msg.GetTask(), r.Msg.GetAttempt()}); err != nil {
		return nil, v.answer("forget", err)
	}
	return connect.NewResponse(&pb.ForgetAttemptResponse{}), nil
}

// answer converts an error for the caller. The caller does not see the cause of an internal error,
// so it is reported as trouble.
func (v *service) answer(op string, err error) error {
	if plimsoll.CodeOf(err) == plimsoll.CodeInternal {
		v.s.cfg.Events.Trouble(Trouble{Kind: TroubleRequest, Op: op, Err: err})
	}
	return wire.ConnectError(err)
}
