package agent

import (
	"context"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// leave is the end of an agent that was told to stop: it ends the supervisor if no attempt runs,
// and tells a gateway, so that the node takes no more tasks. Attempts that run go on, and the
// next agent takes them up again. ctx has ended.
//
// The node is empty if this agent knows of every attempt that can run, none of them does, and
// each end was acknowledged. Only then the coordinator gives up the tasks that are bound to it at
// once: no attempt may start elsewhere while it runs here.
func (a *Agent) leave(ctx context.Context, s *speaker) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.LeaveTimeout)
	defer cancel()
	running := a.retire(ctx, s.ledger)
	empty := running == 0 && s.ledger.empty() && len(s.out.next(1)) == 0
	a.deps.Events.Left(running, s.leave(ctx, a.cfg.LeaveTimeout, running, empty))
}

// retire ends the supervisor if no attempt runs, and returns how many do.
func (a *Agent) retire(ctx context.Context, l *ledger) (running int) {
	if a.deps.Retire == nil {
		return l.live()
	}
	running, err := a.deps.Retire(ctx)
	if err == nil {
		return running
	}
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable { // there is none
		a.deps.Events.Trouble(Trouble{Kind: TroubleRetire, Err: err})
	}
	return l.live()
}

// leave tells the gateway that was spoken to last, or another one. Each has a part of the time.
func (s *speaker) leave(ctx context.Context, all time.Duration, running int, empty bool) error {
	if s.told == "" {
		return nil // nobody knows of this agent
	}
	left := &pb.LeaveNodeRequest{
		Node: s.node.ID, Incarnation: s.node.Incarnation, Running: int32(running), Empty: empty,
	}
	others := slices.DeleteFunc(slices.Clone(s.gateways), func(g string) bool { return g == s.told })
	var err error
	for _, address := range append([]string{s.told}, others...) {
		if err = s.leaveAt(ctx, address, all/time.Duration(len(s.gateways)), left); err == nil {
			return nil
		}
	}
	return err
}

func (s *speaker) leaveAt(ctx context.Context, address string, timeout time.Duration, left *pb.LeaveNodeRequest) error {
	g, err := s.dial(address)
	if err != nil {
		return err
	}
	defer g.close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return g.leave(ctx, left)
}

// live returns how many attempts run, as far as it is known.
func (l *ledger) live() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entries := range l.mu.entries {
		for _, e := range entries {
			if e.phase == phaseLive || e.phase == phaseStarting {
				n++
			}
		}
	}
	return n
}

// empty reports whether it is known that no attempt runs, and that each end was acknowledged.
func (l *ledger) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entries := range l.mu.entries {
		for _, e := range entries {
			if e.phase != phaseEnded && e.phase != phaseOrphan || e.phase == phaseEnded && !e.acked {
				return false
			}
		}
	}
	return l.mu.known
}
