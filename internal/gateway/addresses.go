package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

const (
	agentDialTimeout = 5 * time.Second
	agentIdentity    = "node.json" // in an agent's directory: which node it is
	maxIdentity      = 4096        // bytes of it
)

// agentAddresses knows at which addresses agents may be called. An agent chooses its own address,
// so without a rule it could have the gateway call services that the agent itself does not reach.
//
// Over TCP an agent is called at the IP address from which it has registered, at any of this
// machine if it runs here, and in the networks that are allowed. A name is resolved when it is
// called, and the address that was checked is called. A unix socket has to lie in the directory of
// the node's agent and to belong, like the directory and the file in it that names the node, to the
// user whose agent has registered. Of an agent that calls over TCP that user is not known; but
// nobody can put such a file of another user beside a socket of that user.
type agentAddresses struct {
	allowed []netip.Prefix
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	owns    func(ip netip.Addr) bool // this machine has the address
}

func newAgentAddresses(allowed []netip.Prefix) *agentAddresses {
	return &agentAddresses{allowed: allowed, lookup: net.DefaultResolver.LookupNetIP, owns: isOwn}
}

func isOwn(ip netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr() == ip
	})
}

// check reports whether the address that a node registers with can be called. Names are not
// resolved yet.
func (a *agentAddresses) check(node *pb.Node) error {
	address := node.GetAddress()
	if address == "" {
		return nil
	}
	network, rest, err := transport.Split(address)
	if err != nil {
		return err
	}
	if network == "unix" {
		return checkSocket(node, rest)
	}
	host, err := agentHost(address, rest)
	if err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(host); err == nil && !a.allows(ip, node.GetPeer()) {
		return notAllowed(node)
	}
	return nil
}

// checkSocket leaves it to the call to refuse a socket that this gateway cannot reach at all: the
// node may be on another machine, or the agent another user's, and only its logs are then missing
// here.
func checkSocket(node *pb.Node, path string) error {
	socket, _, err := openSocket(node, path)
	if err == nil {
		return socket.Close()
	}
	var beyond unreachable
	if errors.As(err, &beyond) && (errors.Is(
		beyond.cause, unix.EACCES,
	) || errors.Is(beyond.cause, unix.ENOENT) && !runsHere(transport.ParsePeer(node.GetPeer()))) {
		return nil
	}
	return err
}

var agentName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)

// agentHost returns the host of an address of TCP: an IP address or a name, and nothing else.
func agentHost(address, rest string) (string, error) {
	host, port, err := net.SplitHostPort(rest)
	if err != nil || port == "0" {
		return "", plimsoll.Invalid("address", "%q is not an address; write for example 10.0.0.7:9081", address)
	}
	if _, err := netip.ParseAddr(host); err != nil && !agentName.MatchString(host) {
		return "", plimsoll.Invalid("address", "%q names no host; write for example 10.0.0.7:9081", address)
	}
	return host, nil
}

// allows reports whether the agent of a node that has registered from peer may be called at ip.
func (a *agentAddresses) allows(ip netip.Addr, peer string) bool {
	ip = ip.Unmap().WithZone("")
	if ip.IsUnspecified() || ip.IsMulticast() {
		return false
	}
	from := transport.ParsePeer(peer)
	if from.IP == ip || runsHere(from) && (ip.IsLoopback() || a.owns(ip)) {
		return true
	}
	for _, prefix := range a.allowed {
		if prefix.Contains(ip) {
			return true
		}
	}
	return false
}

// runsHere reports whether a peer is known to be a process of this machine.
func runsHere(p transport.Peer) bool { return p.UID >= 0 || p.IP.IsLoopback() }

func notAllowed(node *pb.Node) error {
	from := node.GetPeer()
	if from == "" {
		from = "an address that is not known; it has to register again"
	}
	return &plimsoll.Error{Code: plimsoll.CodeDenied, Field: "address", Msg: fmt.Sprintf("%q is not where node %q calls from (%s); let its agent "+
		"advertise an address that it calls from, or start the gateways with --agent-addresses and the agents' network, such as 10.0.0.0/8",
		node.GetAddress(), node.GetId(), from)}
}

// dial connects to the agent of a node, if its address is one at which it may be called.
func (a *agentAddresses) dial(ctx context.Context, node *pb.Node) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, agentDialTimeout)
	defer cancel()
	network, rest, err := transport.Split(node.GetAddress())
	if err != nil {
		return nil, plimsoll.Errorf(
			plimsoll.CodeConflict, "the agent of node %q gave the address %q, which is none", node.GetId(),
			node.GetAddress(),
		)
	}
	if network == "unix" {
		return dialSocket(ctx, node, rest)
	}
	host, err := agentHost(node.GetAddress(), rest)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(rest)
	if err != nil {
		return nil, err //nolint:wrapcheck // agentHost has taken it apart before
	}
	ips, err := a.resolve(ctx, host)
	if err != nil {
		return nil, cannotReach(node, err)
	}
	for _, ip := range ips {
		if !a.allows(ip, node.GetPeer()) {
			continue
		}
		var dialer net.Dialer
		c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(ip.String(), port))
		if err != nil {
			return nil, cannotReach(node, err)
		}
		return c, nil
	}
	return nil, notAllowed(node)
}

func (a *agentAddresses) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	return a.lookup(ctx, "ip", host)
}

func cannotReach(node *pb.Node, err error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Err: err,
		Msg: "the agent of node " + node.GetId() + " at " + node.GetAddress() + " cannot be reached; see that it runs, and try again",
	}
}

// dialSocket connects to the very socket that was checked: what lies at its path may have changed
// since.
func dialSocket(ctx context.Context, node *pb.Node, path string) (net.Conn, error) {
	socket, owner, err := openSocket(node, path)
	var beyond unreachable
	if errors.As(err, &beyond) && errors.Is(beyond.cause, unix.ENOENT) {
		return nil, cannotReach(node, beyond.cause)
	}
	if err != nil {
		return nil, err
	}
	defer socket.Close() //nolint:errcheck // it is only a handle, and nothing was written
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(int(socket.Fd())))
	if err != nil {
		return nil, cannotReach(node, err)
	}
	if listens := transport.PeerOfConn(c); listens.UID != int(owner) {
		_ = c.Close() // nothing was said
		return nil, badSocket(node, path, "belongs to one user, and another one listens on it")
	}
	return c, nil
}

// unreachable is the error for a path at which this gateway finds nothing that it could call.
type unreachable struct{ told, cause error }

// Error implements error.
func (u unreachable) Error() string { return u.told.Error() }

// Unwrap returns what a caller is told.
func (u unreachable) Unwrap() error { return u.told }

func badSocket(node *pb.Node, path, why string) error {
	return &plimsoll.Error{Code: plimsoll.CodeDenied, Field: "address", Msg: fmt.Sprintf("unix:%s %s, so it cannot be the log address of node %q; an agent "+
		"listens on a socket in its own directory, or on TCP", path, why, node.GetId())}
}

// openSocket returns a handle of the socket at a path, and its owner, if it can be that of the
// node's agent.
func openSocket(node *pb.Node, path string) (socket *os.File, owner uint32, err error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return nil, 0, badSocket(node, path, "is not an absolute path")
	}
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		told := badSocket(node, path, "is in a directory that this gateway cannot open ("+reason(err)+")")
		return nil, 0, unreachable{told, err}
	}
	defer dir.Close() //nolint:errcheck // it is only a handle
	socket, owner, err = openIn(dir, filepath.Base(path), unix.O_PATH, unix.S_IFSOCK)
	if err != nil {
		told := badSocket(node, path, "is no socket that this gateway can open ("+reason(err)+")")
		return nil, 0, unreachable{told, err}
	}
	if why, cause := strange(node, dir, owner); why != "" {
		return nil, 0, errors.Join(unreachable{badSocket(node, path, why), cause}, socket.Close())
	}
	return socket, owner, nil
}

// strange says why a socket of an owner in a directory cannot be that of a node's agent; empty: it
// can.
func strange(node *pb.Node, dir *os.File, owner uint32) (why string, cause error) {
	var is unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &is); err != nil || is.Uid != owner {
		return "is in a directory of another user", nil
	}
	if peer := transport.ParsePeer(node.GetPeer()); peer.UID >= 0 && uint32(peer.UID) != owner {
		return fmt.Sprintf("belongs to the user %d, and the agent runs as %d", owner, peer.UID), nil
	}
	file, owned, err := openIn(dir, agentIdentity, unix.O_RDONLY|unix.O_NONBLOCK, unix.S_IFREG)
	if err != nil {
		return "is not in the directory of an agent: it has no " + agentIdentity + " (" + reason(err) + ")", denied(err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	var identity struct {
		Node string `json:"node"`
	}
	data, err := io.ReadAll(io.LimitReader(file, maxIdentity))
	if err == nil {
		err = json.Unmarshal(data, &identity)
	}
	if err != nil || owned != owner || identity.Node != node.GetId() {
		return "is not in the directory of this node's agent", nil
	}
	return "", nil
}

// denied returns an error if it says that this gateway's user may not read something.
func denied(err error) error {
	if errors.Is(err, unix.EACCES) {
		return err
	}
	return nil
}

// openIn opens what a name stands for in a directory, if it is of a type and no link.
func openIn(dir *os.File, name string, flags int, kind uint32) (*os.File, uint32, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // reason prints it
	}
	file := os.NewFile(uintptr(fd), name)
	var is unix.Stat_t
	err = unix.Fstat(fd, &is)
	if err == nil && is.Mode&unix.S_IFMT != kind {
		err = errors.New("it is of another type")
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, is.Uid, nil
}

// reason is the cause of an error of the file system, without the path.
func reason(err error) string {
	if inner := (*os.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	return err.Error()
}
