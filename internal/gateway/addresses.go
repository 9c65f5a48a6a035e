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
	agentIdentity    = "node.json" // file in an agent's directory that names its node
	maxIdentity      = 4096        // bytes read of that file
)

// agentAddresses decides at which addresses agents may be called. An agent chooses its own address.
// Without a rule it could make the gateway call services that the agent itself cannot reach.
//
// Over TCP an agent is called at the IP address from which it has registered, and in the networks
// that are allowed. An agent of this machine is called at any address of this machine. A name is
// resolved for each call, and the call goes to the address that was checked.
//
// A unix socket has to lie in the directory of the node's agent. The socket, the directory and the
// file that names the node belong to one user, the one whose agent has registered. For an agent
// that registers over TCP that user is not known, and it is enough that the three have one owner:
// nobody can put a file of another user beside a socket of that user.
type agentAddresses struct {
	allowed []netip.Prefix
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	owns    func(ip netip.Addr) bool // reports whether this machine has the address
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

// checkSocket refuses a socket that cannot be the agent's. A socket that this gateway cannot reach
// passes here and is refused by the call: the node may be on another machine, or its agent another
// user's. Only its logs are then missing at this gateway.
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
	return &plimsoll.Error{
		Code: plimsoll.CodeDenied, Field: "address",
		Msg: fmt.Sprintf(
			"%q is not where node %q calls from (%s); let its agent advertise an address that it calls from, "+
				"or start the gateways with --agent-addresses and the agents' network, such as 10.0.0.0/8",
			node.GetAddress(), node.GetId(), from,
		),
	}
}

// dial connects to the agent of a node, if the agent may be called at the address of the node.
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
		return nil, err //nolint:wrapcheck // agentHost has parsed the address before
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
		Msg: "the agent of node " + node.GetId() + " at " + node.GetAddress() +
			" cannot be reached; see that it runs, and try again",
	}
}

// dialSocket connects to the very socket that was checked: another one may lie at its path by now.
func dialSocket(ctx context.Context, node *pb.Node, path string) (net.Conn, error) {
	socket, owner, err := openSocket(node, path)
	var beyond unreachable
	if errors.As(err, &beyond) && errors.Is(beyond.cause, unix.ENOENT) {
		return nil, cannotReach(node, beyond.cause)
	}
	if err != nil {
		return nil, err
	}
	defer socket.Close() //nolint:errcheck // a handle: nothing was written
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

// unreachable is the error for a path at which this gateway finds no socket that it could call.
// shown is the error for the caller, cause the one of the file system.
type unreachable struct{ shown, cause error }

// Error implements error.
func (u unreachable) Error() string { return u.shown.Error() }

// Unwrap returns the error for the caller.
func (u unreachable) Unwrap() error { return u.shown }

func badSocket(node *pb.Node, path, why string) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeDenied, Field: "address",
		Msg: fmt.Sprintf(
			"unix:%s %s, so it cannot be the log address of node %q; an agent listens on a socket in its own "+
				"directory, or on TCP",
			path, why, node.GetId(),
		),
	}
}

// openSocket returns a handle of the socket at a path and the socket's owner. It fails if the
// socket cannot belong to the node's agent.
func openSocket(node *pb.Node, path string) (socket *os.File, owner uint32, err error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return nil, 0, badSocket(node, path, "is not an absolute path")
	}
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		told := badSocket(node, path, "is in a directory that this gateway cannot open ("+reason(err)+")")
		return nil, 0, unreachable{told, err}
	}
	defer dir.Close() //nolint:errcheck // a handle: nothing was written
	socket, owner, err = openIn(dir, filepath.Base(path), unix.O_PATH, unix.S_IFSOCK)
	if err != nil {
		told := badSocket(node, path, "is no socket that this gateway can open ("+reason(err)+")")
		return nil, 0, unreachable{told, err}
	}
	if why, cause := socketMismatch(node, dir, owner); why != "" {
		return nil, 0, errors.Join(unreachable{badSocket(node, path, why), cause}, socket.Close())
	}
	return socket, owner, nil
}

// socketMismatch returns the reason why a socket of an owner in a directory cannot belong to a
// node's agent; empty if it can. cause is the error of a file that this gateway may not read.
func socketMismatch(node *pb.Node, dir *os.File, owner uint32) (why string, cause error) {
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
	defer file.Close() //nolint:errcheck // nothing was written
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

// denied returns err if this gateway's user lacks a permission, and nil otherwise.
func denied(err error) error {
	if errors.Is(err, unix.EACCES) {
		return err
	}
	return nil
}

// openIn opens a file of a directory by its name. It fails for a link, and for a file of another
// kind.
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

// reason returns the cause of an error of the file system, without the path.
func reason(err error) string {
	if inner := (*os.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	return err.Error()
}
