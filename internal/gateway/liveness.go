package gateway

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// maxSilenceReports bounds the silent nodes that are reported to the leader at the same time.
const maxSilenceReports = 64

// liveness is the table of the nodes that this gateway hears, for one connection to the leader.
// When that connection breaks, the leader gives the gateway's nodes a while to register again. So
// the table is emptied, and heartbeats ask for a registration.
type liveness struct {
	limit int

	mu struct {
		sync.Mutex
		connection uint64 // number of the connection to the leader
		nodes      map[string]*heardNode
		// since is the earliest instant from which silence counts. Before it the gateway itself
		// stood still.
		since    time.Duration
		lastTick time.Duration
	}
}

// heardNode is a node that registered here. While its registration is under way the registration
// number is 0, and the node does not count as known.
type heardNode struct {
	incarnation  uint64
	registration uint64
	heard        time.Duration // instant of its last sign of life
}

func newLiveness(limit int) *liveness {
	l := &liveness{limit: limit}
	l.mu.nodes = map[string]*heardNode{}
	return l
}

// reserve makes an entry for a node whose registration begins, and returns the number of the
// connection to which the entry belongs.
func (l *liveness) reserve(id string) (connection uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.nodes[id] == nil {
		if len(l.mu.nodes) >= l.limit {
			return 0, plimsoll.Errorf(
				plimsoll.CodeExhausted, "this gateway hears %d nodes, as many as it may; register at another gateway",
				l.limit,
			)
		}
		l.mu.nodes[id] = &heardNode{}
	}
	return l.mu.connection, nil
}

// release removes the entry of a registration that has failed, unless the node was registered
// before.
func (l *liveness) release(id string, connection uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.mu.nodes[id]; n != nil && n.registration == 0 && l.mu.connection == connection {
		delete(l.mu.nodes, id)
	}
}

// register notes a registration by the leader. A registration over an earlier connection does not
// count, and an older one does not replace a newer one.
func (l *liveness) register(id string, connection, incarnation, registration uint64, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.mu.nodes[id]
	if l.mu.connection != connection || n != nil && n.registration > registration {
		return
	}
	l.mu.nodes[id] = &heardNode{incarnation: incarnation, registration: registration, heard: now}
}

// heard notes a sign of life and reports whether the node is registered here. An incarnation that
// was replaced is refused.
func (l *liveness) heard(id string, incarnation uint64, now time.Duration) (known bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.mu.nodes[id]
	switch {
	case n == nil || n.registration == 0 || incarnation > n.incarnation:
		return false, nil
	case incarnation < n.incarnation:
		return false, staleIncarnation(id, n.incarnation, incarnation)
	}
	n.heard = now
	return true, nil
}

// count returns how many nodes are registered here.
func (l *liveness) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.nodes)
}

// reconnected begins another connection to the leader: every node has to register again.
func (l *liveness) reconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.connection++
	clear(l.mu.nodes)
}

// silent returns the nodes that were not heard for longer than timeout, ordered by name. It is to
// be called once in every interval. If a call comes late, the gateway stood still and could hear no
// node, so all of them have the whole timeout again.
func (l *liveness) silent(now, timeout, interval time.Duration) []*pb.NodeLiveness {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.lastTick != 0 && now-l.mu.lastTick > 2*interval {
		l.mu.since = now
	}
	l.mu.lastTick = now
	var found []*pb.NodeLiveness
	for id, n := range l.mu.nodes {
		if n.registration != 0 && now-max(n.heard, l.mu.since) > timeout {
			found = append(found, &pb.NodeLiveness{Node: id, Incarnation: n.incarnation, Registration: n.registration})
		}
	}
	slices.SortFunc(found, func(a, b *pb.NodeLiveness) int { return strings.Compare(a.GetNode(), b.GetNode()) })
	return found
}

// forget removes a node whose silence was reported, unless it has registered again.
func (l *liveness) forget(id string, registration uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.mu.nodes[id]; n != nil && n.registration == registration {
		delete(l.mu.nodes, id)
	}
}

// leave removes a node whose agent has stopped, unless a later incarnation has registered.
func (l *liveness) leave(id string, incarnation uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.mu.nodes[id]; n != nil && n.registration != 0 && n.incarnation <= incarnation {
		delete(l.mu.nodes, id)
	}
}

// watchNodes reports the nodes that fell silent, once in every heartbeat interval, until ctx ends.
func (g *Gateway) watchNodes(ctx context.Context) error {
	// No node has the empty id, so the only signals are those that follow each connection to the
	// leader.
	reconnected, cancel := g.replica.Watch(wire.KindNode, "")
	defer cancel()
	ticker := time.NewTicker(g.cfg.HeartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-reconnected:
			g.nodes.reconnected()
			continue
		case <-ticker.C:
		}
		select {
		case <-reconnected: // the table belongs to the earlier connection
			g.nodes.reconnected()
		default:
			g.reportSilent(ctx)
		}
	}
}

// reportSilent reports each silent node to the leader. A report that fails is tried again at the
// next tick.
func (g *Gateway) reportSilent(ctx context.Context) {
	silent := g.nodes.silent(g.cfg.Clock(), g.cfg.NodeTimeout, g.cfg.HeartbeatInterval)
	var group errgroup.Group
	group.SetLimit(maxSilenceReports)
	for _, n := range silent {
		group.Go(func() error {
			_, err := g.do(ctx, &pb.Command{Kind: &pb.Command_NodeLiveness{NodeLiveness: n}})
			if err == nil {
				g.nodes.forget(n.GetNode(), n.GetRegistration())
			}
			g.cfg.Events.NodeSilent(n.GetNode(), err)
			return nil
		})
	}
	_ = group.Wait() // each error went to the listener
}
