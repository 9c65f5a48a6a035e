package transport

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// The default bounds on connections. They are parts of the process's descriptors. The rest is for
// its files, its own calls and the reserve of the store.
const (
	userShare  = 4 // users have a quarter of the descriptors
	agentShare = 8 // agents and gateways have an eighth

	maxUserConnections  = 8192
	maxAgentConnections = 20_480 // as many as the nodes that a gateway hears, and some more

	minConnections = 16
)

// blockedWrite is the age of a waiting write at which its connection may be closed for a new one.
const blockedWrite = 5 * time.Second

// The names of bounds for ConnectionsConfig.Refused.
const (
	BoundConnections       = "connections"
	BoundPeerConnections   = "peer_connections"
	BoundAgentConnections  = "agent_connections"
	BoundStreamConnections = "stream_connections"
	BoundDescriptors       = "descriptors"
)

// ConnectionBounds returns the names of all bounds, as ConnectionsConfig.Refused gets them.
func ConnectionBounds() []string {
	return []string{
		BoundConnections, BoundPeerConnections, BoundAgentConnections, BoundStreamConnections, BoundDescriptors,
	}
}

// ConnectionsConfig holds the settings of Connections. A zero value stands for the default.
type ConnectionsConfig struct {
	Users  int // connections of users; default a quarter of RLIMIT_NOFILE, at most 8,192
	Agents int // connections of agents and gateways; default an eighth of RLIMIT_NOFILE, at most 20,480
	Peer   int // connections of users at one IP address of another machine; default half of Users

	// Refused is called for each refused connection or stream, with the name of the bound. It must
	// not block.
	Refused func(bound string)
	// Closed is called for each connection that was closed to make room for another. It must not
	// block.
	Closed func()
}

// Connections bounds the connections of a process, over all listeners that share it. Users and
// agents are counted apart: a connection counts as an agent's if its listener is for agents, or
// once a request on it came from one (see CallerOf).
//
// When there is no room for a new connection, another of the same kind is closed for it. That is
// the oldest that has never sent a whole request, or the one that has been idle longest: of these
// two, the kind of which there are more. So neither fills the room of the other, and a new
// connection has time to ask for something. If there is none, it is one that has not read its
// answer for five seconds, or else the new one itself. Connections of agents that were served, and
// those with a request or stream under way whose answer is read, are never closed for others.
// Streams take at most three quarters of the users' connections.
type Connections struct {
	cfg   ConnectionsConfig
	began time.Time

	mu struct {
		sync.Mutex
		users, agents pool
		peers         map[netip.Addr]int // connections of users at other machines
		lasting       int                // connections of users with a stream
		scanned       time.Time          // instant of the last search for a blocked connection
	}
}

// pool holds the connections of one kind. Invariant: each connection is in exactly one of the
// lists, the one that has been there longest first.
type pool struct {
	most, now int
	fresh     list.List // connections that have never sent a whole request
	idle      list.List // connections that were served and have no whole request under way
	busy      list.List
}

// NewConnections makes Connections that listeners can share.
func NewConnections(cfg ConnectionsConfig) *Connections {
	files := OpenFiles()
	if cfg.Users == 0 {
		cfg.Users = min(max(files/userShare, minConnections), maxUserConnections)
	}
	if cfg.Agents == 0 {
		cfg.Agents = min(max(files/agentShare, minConnections), maxAgentConnections)
	}
	if cfg.Peer == 0 {
		cfg.Peer = max(cfg.Users/2, 1)
	}
	if cfg.Refused == nil {
		cfg.Refused = func(string) {}
	}
	if cfg.Closed == nil {
		cfg.Closed = func() {}
	}
	c := &Connections{cfg: cfg, began: time.Now()}
	c.mu.users.most, c.mu.agents.most = cfg.Users, cfg.Agents
	c.mu.peers = map[netip.Addr]int{}
	return c
}

// OpenFiles returns the number of descriptors that this process may have: RLIMIT_NOFILE. (Go raises
// the soft limit to the hard one when a process starts.)
func OpenFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // every Linux grants as many
	}
	return int(min(limit.Cur, 1<<20))
}

// FewConnections makes Connections for a listener whose callers are processes of the cluster more
// than users. Users have a sixteenth of the descriptors, agents a thirty-second. refused is
// ConnectionsConfig.Refused.
func FewConnections(refused func(bound string)) *Connections {
	files := OpenFiles()
	return NewConnections(ConnectionsConfig{
		Users: max(files/16, minConnections), Agents: max(files/32, minConnections), Refused: refused,
	})
}

// Count returns the numbers of connections that users and agents have.
func (c *Connections) Count() (users, agents int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.users.now, c.mu.agents.now
}

// Bounds returns the bounds on the connections of users and agents.
func (c *Connections) Bounds() (users, agents int) { return c.cfg.Users, c.cfg.Agents }

// listener is a net.Listener whose connections are bounded.
type listener struct {
	net.Listener
	connections *Connections
	caller      Caller
}

// Accept implements net.Listener. If the process is out of descriptors, it closes a connection to
// make room; net/http then waits a little and tries again.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.connections.freeDescriptor(l.caller)
		}
		if err != nil {
			return nil, err
		}
		if c := l.connections.admit(accepted, l.caller); c != nil {
			return c, nil
		}
	}
}

// conn is a connection that is counted.
type conn struct {
	net.Conn
	owner   *Connections
	peer    netip.Addr   // address of another machine; invalid for this one
	trusted atomic.Bool  // an agent or a gateway was served on the connection
	writing atomic.Int64 // age of the owner when the waiting write began; 0: none waits
	body    *gathered    // body that is being written; nil: none. It belongs to the request's goroutine

	// Guarded by owner.mu.
	pool   *pool
	list   *list.List // list of pool; nil once the connection is closed
	at     *list.Element
	whole  int // requests under way that have arrived as a whole
	lasts  int // streams under way
	served bool
}

// admit counts a connection. If there is no room it closes the connection and returns nil.
func (c *Connections) admit(accepted net.Conn, caller Caller) *conn {
	added := &conn{Conn: accepted, owner: c, peer: otherMachine(accepted.RemoteAddr())}
	c.mu.Lock()
	added.pool = &c.mu.users
	bound := BoundConnections
	if caller != CallerUser {
		added.pool, added.peer, bound = &c.mu.agents, netip.Addr{}, BoundAgentConnections
	}
	var leaving *conn
	room := true
	if added.peer.IsValid() && c.mu.peers[added.peer] >= c.cfg.Peer {
		bound = BoundPeerConnections
		leaving = c.dispensable(added.pool, added.peer)
		room = leaving != nil
	} else if added.pool.now >= added.pool.most {
		leaving = c.dispensable(added.pool, netip.Addr{})
		room = leaving != nil
	}
	if leaving != nil {
		c.remove(leaving)
	}
	if room {
		added.pool.now++
		if added.peer.IsValid() {
			c.mu.peers[added.peer]++
		}
		added.move(&added.pool.fresh)
	}
	c.mu.Unlock()
	if leaving != nil {
		_ = leaving.Conn.Close() // it is given up; there is nobody to tell
		c.cfg.Closed()
	}
	if room {
		return added
	}
	_ = accepted.Close() // as above
	c.cfg.Refused(bound)
	return nil
}

// freeDescriptor closes a connection because the process is out of descriptors.
func (c *Connections) freeDescriptor(caller Caller) {
	c.mu.Lock()
	leaving := c.dispensable(&c.mu.users, netip.Addr{})
	if leaving == nil && caller != CallerUser {
		leaving = c.dispensable(&c.mu.agents, netip.Addr{})
	}
	if leaving != nil {
		c.remove(leaving)
	}
	c.mu.Unlock()
	c.cfg.Refused(BoundDescriptors)
	if leaving != nil {
		_ = leaving.Conn.Close() // it is given up; there is nobody to tell
		c.cfg.Closed()
	}
}

// dispensable returns a connection that can be closed for another; nil: there is none. A valid peer
// restricts the search to its connections. The caller holds mu.
func (c *Connections) dispensable(p *pool, peer netip.Addr) *conn {
	lists := []*list.List{&p.fresh, &p.idle}
	switch {
	case p == &c.mu.agents:
		lists = lists[:1]
	case p.idle.Len() > p.fresh.Len():
		lists[0], lists[1] = lists[1], lists[0]
	}
	for _, l := range lists {
		for e := l.Front(); e != nil; e = e.Next() {
			if found := element(e); !found.trusted.Load() && (!peer.IsValid() || found.peer == peer) {
				return found
			}
		}
	}
	now := time.Now()
	if p == &c.mu.agents || now.Sub(c.mu.scanned) < time.Second {
		return nil // the busy connections are searched once in a second at most
	}
	c.mu.scanned = now
	for e := p.busy.Front(); e != nil; e = e.Next() {
		found := element(e)
		since := found.writing.Load()
		if since != 0 && c.age()-since >= int64(blockedWrite) && !found.trusted.Load() &&
			(!peer.IsValid() || found.peer == peer) {
			return found
		}
	}
	return nil
}

// age is the time since the beginning, in nanoseconds, and above 0. It does not follow a wall clock
// that steps: each connection that just writes would look blocked after a step forward.
func (c *Connections) age() int64 { return int64(time.Since(c.began)) + 1 }

func element(e *list.Element) *conn {
	c, _ := e.Value.(*conn) // a list of a pool holds nothing else
	return c
}

// move moves a connection to the end of a list of its pool; nil takes it out. The caller holds mu.
func (c *conn) move(to *list.List) {
	if c.list != nil {
		c.list.Remove(c.at)
	}
	if c.list = to; to != nil {
		c.at = to.PushBack(c)
	}
}

// remove takes a connection out of the count. The caller holds mu.
func (c *Connections) remove(gone *conn) {
	if gone.list == nil {
		return
	}
	gone.move(nil)
	gone.pool.now--
	if gone.lasts > 0 && gone.pool == &c.mu.users {
		c.mu.lasting--
	}
	c.forgetPeer(gone)
}

// forgetPeer takes a connection out of its peer's count. The caller holds mu.
func (c *Connections) forgetPeer(of *conn) {
	if !of.peer.IsValid() {
		return
	}
	if c.mu.peers[of.peer]--; c.mu.peers[of.peer] <= 0 {
		delete(c.mu.peers, of.peer)
	}
	of.peer = netip.Addr{}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.owner.mu.Lock()
	c.owner.remove(c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the underlying connection.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Write implements net.Conn. The header of a body in buffers waits for its body.
func (c *conn) Write(p []byte) (int, error) {
	if body := c.body; body != nil {
		if body.hold(p) {
			return len(p), nil
		}
		c.body = nil
		if _, err := c.Write(body.head); err != nil {
			return 0, err
		}
		body.head = body.head[:0]
	}
	c.writing.Store(c.owner.age())
	n, err := c.Conn.Write(p)
	c.writing.Store(0)
	return n, err
}

// arrived notes a request that has come as a whole.
func (c *conn) arrived() {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.whole++; c.whole == 1 && c.list != nil {
		c.move(&c.pool.busy)
	}
}

// answered notes the end of a request that had come as a whole.
func (c *conn) answered() {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.whole--; c.whole == 0 && c.list != nil {
		c.served = true
		c.move(&c.pool.idle)
	}
}

// trust counts a connection as an agent's. If agents have as many connections as they may, it stays
// among the users', but is not closed for others.
func (c *conn) trust() {
	if c.trusted.Swap(true) {
		return
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	users, agents := &c.owner.mu.users, &c.owner.mu.agents
	if c.list == nil || c.pool != users || agents.now >= agents.most {
		return
	}
	if c.lasts > 0 {
		c.owner.mu.lasting--
	}
	c.owner.forgetPeer(c)
	at := c.list
	users.now--
	agents.now++
	c.pool = agents
	switch at {
	case &users.fresh:
		c.move(&agents.fresh)
	case &users.idle:
		c.move(&agents.idle)
	default:
		c.move(&agents.busy)
	}
}

// keep counts a stream on a connection. It reports false if the connection is a user's and streams
// have as many connections as they may.
func (c *conn) keep() bool {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.lasts == 0 && c.list != nil && c.pool == &c.owner.mu.users {
		if c.owner.mu.lasting >= max(c.pool.most*3/4, 1) {
			return false
		}
		c.owner.mu.lasting++
	}
	c.lasts++
	return true
}

func (c *conn) release() {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.lasts--; c.lasts == 0 && c.list != nil && c.pool == &c.owner.mu.users {
		c.owner.mu.lasting--
	}
}

// KeepStream notes that the request of a context is a stream, which may last. The caller calls done
// at its end. It fails with CodeExhausted if streams have as many connections of users as they may.
func KeepStream(ctx context.Context) (done func(), err error) {
	c := connOf(ctx)
	if c == nil {
		return func() {}, nil
	}
	if c.keep() {
		return c.release, nil
	}
	c.owner.cfg.Refused(BoundStreamConnections)
	return nil, plimsoll.Errorf(plimsoll.CodeExhausted, "streams have %d connections here, as many as they may: "+
		"use one connection for several, over HTTP/2, or try again later", max(c.owner.cfg.Users*3/4, 1))
}

type connKey struct{}

// withConn is http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if counted, ok := c.(*conn); ok {
		return context.WithValue(ctx, connKey{}, counted)
	}
	return ctx
}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// otherMachine returns the IP address of a peer that is not on this machine.
func otherMachine(address net.Addr) netip.Addr {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, _ := netip.AddrFromSlice(tcp.IP)
	if ip = plainIP(ip); ip.IsLoopback() {
		return netip.Addr{} // invalid: all callers on this machine
	}
	return ip
}
