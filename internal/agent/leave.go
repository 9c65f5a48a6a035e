package agent

import (
	"context"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// leave ends the supervisor if no attempt runs, and tells a gateway, so that the node gets no more
// tasks. Running attempts run on, and the next agent adopts them. ctx has ended.
//
// The node is empty if this agent knows every attempt that can run, none of them runs, and each end
// was acknowledged. Only then the coordinator gives up the node's tasks at once: no task may start
// elsewhere while it runs here.
func (a *Agent) leave(ctx context.Context, s *sessionManager) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.LeaveTimeout)
	defer cancel()
	running := a.retire(ctx, s.ledger)
	empty := running == 0 && s.ledger.empty() && len(s.out.next(1)) == 0
	a.deps.Events.Left(running, s.leave(ctx, a.cfg.LeaveTimeout, running, empty))
}

// retire ends the supervisor if no attempt runs, and returns the number of running attempts.
func (a *Agent) retire(ctx context.Context, l *ledger) (running int) {
	if a.deps.Retire == nil {
		return l.live()
	}
	running, err := a.deps.Retire(ctx)
	if err == nil {
		return running
	}
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable { // otherwise no supervisor runs
		a.deps.Events.Trouble(Trouble{Kind: TroubleRetire, Err: err})
	}
	return l.live()
}

// leave tells the gateway of the last session, or else another one. Each gets a part of the time.
func (s *sessionManager) leave(ctx context.Context, all time.Duration, running int, empty bool) error {
	if s.lastGateway == "" {
		return nil // no gateway has registered this agent
	}
	left := &pb.LeaveNodeRequest{
		Node: s.node.ID, Incarnation: s.node.Incarnation, Running: int32(running), Empty: empty,
	}
	others := slices.DeleteFunc(slices.Clone(s.gateways), func(g string) bool { return g == s.lastGateway })
	var err error
	for _, address := range append([]string{s.lastGateway}, others...) {
		if err = s.leaveAt(ctx, address, all/time.Duration(len(s.gateways)), left); err == nil {
			return nil
		}
	}
	return err
}

func (s *sessionManager) leaveAt(
	ctx context.Context, address string, timeout time.Duration, left *pb.LeaveNodeRequest,
) error {
	g, err := s.dial(address)
	if err != nil {
		return err
	}
	defer g.close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return g.leave(ctx, left)
}

// live returns the number of attempts that may run, as far as the ledger knows.
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

// empty reports whether no attempt can run, and each end was acknowledged.
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
