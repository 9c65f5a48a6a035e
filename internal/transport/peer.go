package transport

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer identifies the process at the other end of a connection, as far as the kernel knows it.
type Peer struct {
	IP  netip.Addr // address, over TCP
	UID int        // user, over a unix socket; below 0: unknown
}

// NoPeer is an unknown peer.
var NoPeer = Peer{UID: -1}

// String returns the IP address, or a text such as uid:1000; empty for an unknown peer.
func (p Peer) String() string {
	switch {
	case p.IP.IsValid():
		return p.IP.String()
	case p.UID >= 0:
		return "uid:" + strconv.Itoa(p.UID)
	}
	return ""
}

// ParsePeer is the inverse of String. It returns NoPeer for any other text.
func ParsePeer(text string) Peer {
	if ip, err := netip.ParseAddr(text); err == nil {
		return Peer{IP: ip, UID: -1}
	}
	if len(text) > 4 && text[:4] == "uid:" {
		if uid, err := strconv.ParseUint(text[4:], 10, 32); err == nil {
			return Peer{UID: int(uid)}
		}
	}
	return NoPeer
}

type peerKey struct{}

// PeerOf returns the peer of a context's request; NoPeer without a connection.
func PeerOf(ctx context.Context) Peer {
	if p, ok := ctx.Value(peerKey{}).(Peer); ok {
		return p
	}
	return NoPeer
}

// WithPeer returns a context in which PeerOf returns p.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// markPeer puts the peer of a connection into the context of its requests, for
// http.Server.ConnContext.
func markPeer(ctx context.Context, c net.Conn) context.Context { return WithPeer(ctx, PeerOfConn(c)) }

// PeerOfConn returns the peer of a connection. For a unix socket it is the user who connected or,
// on the connecting side, the user who listens.
func PeerOfConn(c net.Conn) Peer {
	if address, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		return Peer{IP: plainIP(address.Addr()), UID: -1}
	}
	for { // listeners may wrap connections
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = inner.NetConn()
	}
	known, ok := c.(syscall.Conn)
	if !ok {
		return NoPeer
	}
	raw, err := known.SyscallConn()
	if err != nil {
		return NoPeer
	}
	peer := NoPeer
	_ = raw.Control(func(fd uintptr) { // a closed connection has no peer
		if credentials, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			peer.UID = int(credentials.Uid)
		}
	})
	return peer
}
