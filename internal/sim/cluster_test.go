package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/historian"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/historytest"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// The names of the processes; each listens at an address of its own (addressOf).
var (
	coordinatorNames = []string{"c1", "c2", "c3"}
	gatewayNames     = []string{"g1", "g2", "relay", "behind"}
)

func addressOf(name string) string { return "unix:/" + name }

// downAddress is the address at which the relay serves the gateway behind it.
const downAddress = "unix:/down"

func coordinatorAddresses() string {
	var all []string
	for _, name := range coordinatorNames {
		all = append(all, addressOf(name))
	}
	return strings.Join(all, ",")
}

// cluster is every role in one bubble, with a network and a store under it.
//
//	clients ── g1 g2 relay behind
//	           │  │  │ └── relay
//	           └──┴──┴── c1 c2 c3 ── quorum
//	historian ── g1 g2
type cluster struct {
	t      *testing.T
	dice   *dice
	net    *network
	quorum *quorum
	kept   *kept
	began  time.Time

	coordinators map[string]*role
	gateways     map[string]*role
	starting     sync.Mutex // held while a gateway is started
	historian    *role
	agents       []*role
	users        *process
	ended        sync.WaitGroup // of all roles that ever ran

	mu struct {
		sync.Mutex
		leader  *role
		epoch   uint64
		elected chan struct{} // closed, and replaced, when a term has begun
		armed   func(r *role) // called with the next process that loads, in the middle of it
		deposed int           // terms that ended because another process leads
		live    int           // times that a follower became live
		resumed int           // of them, without a snapshot
		problem string        // the first thing that must not be
		clients []func()      // that close the clients
	}
}

// role is a process with the parts of Plimsoll that run in it.
type role struct {
	*process
	cluster  *cluster
	link     *storeLink // of a coordinator; it outlives the process
	follower *replica.Follower
	cancel   context.CancelFunc
}

func newCluster(t *testing.T, seed uint64, faults storeFaults) *cluster {
	c := &cluster{
		t: t, dice: newDice(seed, 1), net: newNetwork(), quorum: newQuorum(faults),
		kept: &kept{Memory: historytest.NewMemory()}, began: time.Now(),
		coordinators: map[string]*role{}, gateways: map[string]*role{}, users: newProcess("users"),
	}
	c.mu.elected = make(chan struct{})
	for i, name := range coordinatorNames {
		c.startCoordinator(name, &storeLink{dice: newDice(seed, uint64(10+i))})
	}
	for _, name := range gatewayNames {
		c.startGateway(name)
	}
	c.startHistorian()
	return c
}

// violated notes the first thing that must not be.
func (c *cluster) violated(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.problem == "" {
		c.mu.problem = fmt.Sprintf(format, args...)
	}
}

// run runs the parts of a role until it is ended. Their errors count only if it was not killed.
func (c *cluster) run(r *role, parts ...func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	for _, part := range parts {
		c.ended.Go(func() {
			if err := part(ctx); err != nil && !r.isKilled() {
				c.violated("%s ended with %v", r.name, err)
			}
		})
	}
}

// kill ends the process of a role at once.
func (r *role) kill() {
	r.process.kill()
	r.cluster.net.abandon(r.process)
	r.cancel()
}

func (c *cluster) startCoordinator(name string, link *storeLink) {
	r := &role{process: newProcess(name), cluster: c, link: link}
	l := c.net.listen(r.process, addressOf(name))
	co, err := coordinator.New(coordinator.Config{
		Listen: addressOf(name), Peers: coordinatorAddresses(), Dial: c.net.dialer(r.process),
		Now: r.wall, Seed: 1, Workers: 1, Version: "sim",
		Events: coordinator.Events{
			Leading: func(epoch, _ uint64, _ string) { c.leads(r, epoch) },
			Deposed: func(uint64, error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.mu.deposed++
			},
		},
	}, func(context.Context) (store.Store, error) {
		s := newSession(c.quorum, r.process, link, addressOf(name))
		s.loading = func() { c.loads(r) }
		return s, nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.coordinators[name] = r
	c.mu.Unlock()
	c.run(r, func(ctx context.Context) error { return co.Serve(ctx, l) })
}

// leads notes that a term has begun.
func (c *cluster) leads(r *role, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.isKilled() {
		return
	}
	if epoch <= c.mu.epoch {
		if c.mu.problem == "" {
			c.mu.problem = fmt.Sprintf("%s leads with epoch %d after %d", r.name, epoch, c.mu.epoch)
		}
		return
	}
	c.mu.leader, c.mu.epoch = r, epoch
	close(c.mu.elected)
	c.mu.elected = make(chan struct{})
}

// loads is called in the middle of a load.
func (c *cluster) loads(r *role) {
	c.mu.Lock()
	armed := c.mu.armed
	c.mu.armed = nil
	c.mu.Unlock()
	if armed != nil {
		armed(r)
	}
}

// arm has a function called in the middle of the next load.
func (c *cluster) arm(f func(r *role)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.armed = f
}

// crash kills a coordinator, and starts it again.
func (c *cluster) crash(r *role) {
	r.kill()
	c.restart(r.name)
}

// restart starts a coordinator again that was killed.
func (c *cluster) restart(name string) {
	c.mu.Lock()
	link := c.coordinators[name].link
	c.mu.Unlock()
	c.startCoordinator(name, link)
}

// leading returns the leader and its epoch; a nil role before the first.
func (c *cluster) leading() (*role, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.leader, c.mu.epoch
}

// awaitLeader waits for a leader of a later epoch. It reports false if none comes in a long time.
func (c *cluster) awaitLeader(after uint64, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		c.mu.Lock()
		epoch, elected := c.mu.epoch, c.mu.elected
		c.mu.Unlock()
		if epoch > after {
			return true
		}
		select {
		case <-elected:
		case <-timer.C:
			return false
		}
	}
}

// startGateway starts a gateway in the place of the one that was there. A failover and the plague
// may start the same one at the same time.
func (c *cluster) startGateway(name string) {
	c.starting.Lock()
	defer c.starting.Unlock()
	if old := c.gateway(name); old != nil {
		old.kill()
	}
	r := &role{process: newProcess(name), cluster: c}
	above := coordinatorAddresses()
	if name == "behind" {
		above = downAddress
	}
	f, err := replica.NewFollower(replica.FollowerConfig{
		Gateway: name, Leader: above, Dial: c.net.dialer(r.process), Version: "sim",
		MinBackoff: 300 * time.Millisecond,
		Events: replica.FollowerEvents{Live: func(_, _ uint64, resumed bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.mu.live++; resumed {
				c.mu.resumed++
			}
		}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	r.follower = f
	cfg := gateway.Config{
		ID: name, Listen: addressOf(name), WriteTimeout: 4 * time.Second,
		Clock: func() time.Duration { return time.Duration(r.wall() - c.began.UnixNano()) },
	}
	listeners := gateway.Listeners{Users: c.net.listen(r.process, addressOf(name))}
	if name == "relay" {
		cfg.ListenReplication = downAddress
		if cfg.Relay, err = replica.NewRelay(f, replica.RelayConfig{}); err != nil {
			c.t.Fatal(err)
		}
		listeners.Replication = c.net.listen(r.process, downAddress)
	}
	g, err := gateway.New(cfg, f)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.gateways[name] = r
	c.mu.Unlock()
	c.run(r, f.Run,
		func(ctx context.Context) error { return g.Serve(ctx, listeners) },
		func(ctx context.Context) error { return c.observe(ctx, r) })
}

// gateway returns the present process of a gateway.
func (c *cluster) gateway(name string) *role {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gateways[name]
}

// observe sees to it that the copy of a gateway never goes back.
func (c *cluster) observe(ctx context.Context, r *role) error {
	var seen plimsoll.Version
	for ctx.Err() == nil {
		if s := r.follower.Latest(); s != nil {
			if now := s.Version(); now.Before(seen) {
				return fmt.Errorf("it went back from %+v to %+v", seen, now)
			} else {
				seen = now
			}
		}
		sleep(ctx, 20*time.Millisecond)
	}
	return nil
}

func (c *cluster) startHistorian() {
	r := &role{process: newProcess("historian"), cluster: c}
	servers := addressOf("g1") + "," + addressOf("g2")
	source, err := client.New(client.Config{Server: servers, Dial: c.net.dialer(r.process)})
	if err != nil {
		c.t.Fatal(err)
	}
	h, err := historian.New(historian.Config{
		Source: source, Reader: c.kept, Now: time.Now,
		Open: func(context.Context) (history.Writer, error) { return c.kept, nil },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.historian = r
	c.run(r, func(ctx context.Context) error {
		defer source.Close()
		return h.Run(ctx)
	})
}

// atEnd has a client closed when the cluster ends.
func (c *cluster) atEnd(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.clients = append(c.mu.clients, f)
}

// user returns a client of one gateway.
func (c *cluster) user(gateway string, budget time.Duration) *client.Client {
	u, err := client.New(client.Config{Server: addressOf(gateway), RetryBudget: budget, Dial: c.net.dialer(c.users)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.atEnd(u.Close)
	return u
}

// watches returns a client for the watches of a gateway.
func (c *cluster) watches(gateway string) plimsollv1connect.WatchServiceClient {
	caller, base, err := transport.CallClientOver(addressOf(gateway), c.net.dialer(c.users))
	if err != nil {
		c.t.Fatal(err)
	}
	c.atEnd(caller.CloseIdleConnections)
	return plimsollv1connect.NewWatchServiceClient(caller, base)
}

// answers waits until a gateway answers a strict read.
func (c *cluster) answers(gateway string) error {
	reader := c.user(gateway, time.Minute)
	if _, err := reader.Queues(c.t.Context()); err != nil {
		return fmt.Errorf("%s does not answer: %w", gateway, err)
	}
	return nil
}

// end ends all roles and waits for them.
func (c *cluster) end() {
	c.mu.Lock()
	clients := c.mu.clients
	c.mu.Unlock()
	for _, f := range clients {
		f()
	}
	c.historian.cancel()
	for _, r := range c.agents {
		r.cancel()
	}
	for _, r := range c.gateways {
		r.cancel()
	}
	for _, r := range c.coordinators {
		r.cancel()
	}
	c.ended.Wait()
	c.users.kill()
	c.net.abandon(c.users)
	c.net.close()
	sleep(context.Background(), 10*leaseTTL) // until the last requests to the store have arrived
}

// problem returns the first thing that must not be.
func (c *cluster) problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.problem != "" {
		return errors.New(c.mu.problem)
	}
	return nil
}
