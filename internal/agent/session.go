package agent

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	reportBatch = 500 // reports in one request
	// reportLinger is the wait for further reports to send with the first. A task often starts,
	// runs and ends within moments, and each request costs the coordinator a commit.
	reportLinger = 5 * time.Millisecond
	reportTries  = 4 // consecutive failures before another gateway is tried
	// heartbeatTimeout bounds a gateway's answer to a heartbeat, for which it asks no other server.
	// With the interval that gateways name, a silent link is found lost within 4 s. Only much later
	// would its node be taken for silent.
	heartbeatTimeout = 2 * time.Second
)

// redial are the pauses before another try to reach a gateway or the supervisor.
var redial = plimsoll.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// sessionManager keeps a session with one gateway at a time. Its fields are set before run; node,
// lastGateway and sequence change during sessions.
type sessionManager struct {
	// node is the description that is sent with each registration. rebase renews its incarnation,
	// remeasure its networks.
	node     plimsoll.Node
	gateways []string
	dial     func(address string) (gateway, error)
	every    time.Duration // heartbeat interval unless the gateway names one
	timeout  time.Duration // of a call
	ledger   *ledger
	out      *outbox
	events   Events
	// lastGateway is the gateway of the last session of this incarnation. It is empty before the
	// first registration.
	lastGateway string
	// sequence is that of the last report of tasks. It grows with each request.
	sequence uint64
	// networks returns the networks that are up now; nil: they do not change.
	networks func() (map[string]bool, error)

	policies   *policyBook // nil: no policies are needed
	nodeOut    *nodeOutbox // reports of the QoS loop; nil: none
	registered func()      // called after each registration; may be nil

	// rebase restarts the incarnation from the clock; changed is true if it is a new one. nil: no
	// rebase.
	rebase func() (incarnation uint64, changed bool, err error)
}

// errTakenOver is the error of an agent whose node id another agent has taken.
func errTakenOver(node string, err error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeStale, Op: "run the agent", Err: err,
		Msg: fmt.Sprintf("another agent has registered as node %q since; this one ends and leaves its tasks alone "+
			"(give each machine its own node id, or remove the node to let this one register again)", node),
	}
}

// firstTurn spreads the nodes of a fleet, which all have the same list, over its gateways.
func (s *sessionManager) firstTurn() int {
	id := sha256.Sum256([]byte(s.node.ID)) // even for ids that differ little
	return int(binary.BigEndian.Uint32(id[:]) % uint32(len(s.gateways)))
}

// run keeps sessions with one gateway after another, until ctx ends or another agent has taken
// over.
func (s *sessionManager) run(ctx context.Context) error {
	failures := 0
	for turn := s.firstTurn(); ; turn++ {
		address := s.gateways[turn%len(s.gateways)]
		listed, err := s.session(ctx, address)
		s.ledger.disconnect()
		if ctx.Err() != nil {
			return nil
		}
		if plimsoll.CodeOf(err) == plimsoll.CodeStale {
			return errTakenOver(s.node.ID, err)
		}
		if s.renewIncarnation(err) {
			turn-- // the same gateway again
		}
		if listed {
			failures = 0
		}
		failures++
		wait := redial.Jittered(failures, rand.Int64N)
		s.events.Disconnected(address, err, wait)
		pause(ctx, wait)
	}
}

// renewIncarnation reports whether the incarnation was refused and has been replaced.
func (s *sessionManager) renewIncarnation(err error) bool {
	var e *plimsoll.Error
	if s.rebase == nil || !errors.As(err, &e) || e.Code != plimsoll.CodeInvalid || e.Field != "incarnation" {
		return false
	}
	incarnation, changed, err := s.rebase()
	if err != nil {
		s.events.Trouble(Trouble{Kind: TroubleIncarnation, Err: err})
	}
	s.node.Incarnation = incarnation
	return changed
}

// session registers with a gateway and works with it until an error. listed is true if a complete
// list of assignments arrived.
func (s *sessionManager) session(ctx context.Context, address string) (listed bool, err error) {
	g, err := s.dial(address)
	if err != nil {
		return false, err
	}
	defer g.close()
	every, err := s.register(ctx, g)
	if err != nil {
		return false, err
	}
	s.lastGateway = address
	s.events.Registered(address, &s.node)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.heartbeats(ctx, g, every) })
	group.Go(func() error { return s.reports(ctx, g) })
	if s.nodeOut != nil {
		group.Go(func() error { return s.reportNode(ctx, g) })
	}
	group.Go(func() error {
		s.ledger.beginList()
		if s.policies != nil {
			s.policies.begin()
		}
		err := g.watch(ctx, s.node.ID, s.node.Incarnation, func(a *assignments) {
			if s.policies != nil {
				s.policies.take(a.policies, a.policiesGone, a.complete)
			}
			s.ledger.assign(a.changed, a.removed, a.complete)
			listed = listed || a.complete
		})
		if err == nil {
			err = plimsoll.Errorf(plimsoll.CodeUnavailable, "the gateway ended the list of assignments")
		}
		return err
	})
	err = group.Wait()
	return listed, err
}

func (s *sessionManager) register(ctx context.Context, g gateway) (every time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	every, err = g.register(ctx, &s.node)
	if every <= 0 {
		every = s.every
	}
	if err != nil {
		return every, fmt.Errorf("register the node: %w", err)
	}
	if s.registered != nil {
		s.registered()
	}
	return every, nil
}

// remeasure measures the networks again, and reports whether any has come up or gone down.
func (s *sessionManager) remeasure() bool {
	if s.networks == nil {
		return false
	}
	now, err := s.networks()
	if err != nil {
		s.events.Trouble(Trouble{Kind: TroubleNetworks, Err: err})
		return false
	}
	changed := !maps.Equal(now, s.node.Facts.Networks)
	s.node.Facts.Networks = now
	return changed
}

// heartbeats sends heartbeats at intervals. It registers the node again if the gateway does not
// know it, or if a network came up or went down.
func (s *sessionManager) heartbeats(ctx context.Context, g gateway, every time.Duration) error {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		call, cancel := context.WithTimeout(ctx, min(s.timeout, heartbeatTimeout))
		registered, err := g.heartbeat(call, s.node.ID, s.node.Incarnation)
		cancel()
		if err != nil {
			return fmt.Errorf("send a heartbeat: %w", err)
		}
		if s.remeasure() || !registered {
			if every, err = s.register(ctx, g); err != nil {
				return err
			}
		}
		timer.Reset(every)
	}
}

// reports sends the waiting reports, one request at a time, and continues when new ones are added.
func (s *sessionManager) reports(ctx context.Context, g gateway) error {
	limit, failures := reportBatch, 0
	for {
		batch := s.out.next(limit)
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-s.out.changed:
			}
			pause(ctx, reportLinger)
			continue
		}
		if err := s.out.flush(); err != nil {
			// The coordinator makes durable the reports that this disk cannot keep. The supervisor
			// holds the ends until then.
			s.events.Trouble(Trouble{Kind: TroubleKeepReports, Err: err})
		}
		err := s.send(ctx, g, batch)
		switch {
		case err == nil:
			limit, failures = reportBatch, 0
		case ctx.Err() != nil || plimsoll.CodeOf(err) == plimsoll.CodeStale:
			return err
		case plimsoll.CodeOf(err) == plimsoll.CodeInvalid && limit > 1:
			limit = 1 // find the one that is refused
			continue
		case plimsoll.CodeOf(err) == plimsoll.CodeInvalid:
			s.events.Trouble(Trouble{Kind: TroubleReport, Task: batch[0].Task, Attempt: batch[0].Attempt, Err: err})
			limit = reportBatch
		default:
			if failures++; failures >= reportTries {
				return fmt.Errorf("report tasks: %w", err)
			}
			pause(ctx, redial.Jittered(failures, rand.Int64N))
			continue
		}
		s.out.ack(batch)
		s.ledger.acknowledged(batch)
	}
}

func (s *sessionManager) send(ctx context.Context, g gateway, batch []plimsoll.TaskReport) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.sequence++
	err := g.report(ctx, s.node.ID, s.node.Incarnation, s.sequence, batch)
	if errors.Is(err, context.DeadlineExceeded) {
		return plimsoll.Errorf(plimsoll.CodeDeadline, "the gateway did not acknowledge reports within %s", s.timeout)
	}
	return err
}
