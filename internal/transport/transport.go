// Package transport carries HTTP/1.1 and HTTP/2 without TLS between Plimsoll's processes, over TCP
// and unix sockets. Over TCP it answers no page in a browser except its own, and requires tokens of
// its callers: see Serve and Access.
//
// An address is host:port, http://host:port or unix:/path/of/socket. Every process of the cluster
// that serves or calls uses it like this:
//
//	l, err := transport.Listen("unix:/run/plimsoll.sock")
//	...
//	err = transport.Serve(ctx, l, handler, transport.ServeConfig{}) // until ctx ends
//
//	client, url, err := transport.Client("unix:/run/plimsoll.sock")
//
// The package keeps no state. Each Serve owns the goroutines of its server, which have ended when
// it returns. Junk on a port costs a connection and 64 KiB of headers. A connection without a
// complete header is cut off after ten seconds, and an idle one after two minutes.
//
// Answer.WriteBuffers writes a body that is in many places without a copy. ServeBare is a measure
// for the cost of all that Serve adds to net/http.
//
// Bounds, each with a test: connections, for users and for agents apart, in all and for each peer
// (Connections); 256 requests at a time on a connection of HTTP/2; the time in which a body must
// arrive (Arrival); the time in which an answer or a stream must be read (TimeAnswers). A new
// connection displaces one that has no whole request under way, so callers that send half a request
// keep nobody out.
package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	dialTimeout       = 5 * time.Second
	pingAfter         = 10 * time.Second // silence on a client's connection before a ping
	pingTimeout       = 5 * time.Second
	maxIdleConns      = 64
	// maxConnectionStreams bounds the requests and streams under way on one HTTP/2 connection.
	// Beyond it a Go client opens another connection.
	maxConnectionStreams = 256
	maxSocketPath        = 107 // the kernel's bound, in bytes
)

// Split splits an address into its network ("tcp" or "unix") and the rest.
func Split(address string) (network, rest string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path = strings.TrimPrefix(path, "//"); path == "" {
			return "", "", plimsoll.Invalid(
				"address", "%q has no path; write for example unix:/run/plimsoll.sock", address,
			)
		}
		return "unix", path, nil
	}
	rest = strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
	_, port, err := net.SplitHostPort(rest)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", "", plimsoll.Invalid(
			"address", "%q is not an address; write for example 127.0.0.1:9080 or unix:/run/plimsoll.sock", address,
		)
	}
	return "tcp", rest, nil
}

// Loopback reports whether only this machine can reach the address.
func Loopback(address string) bool {
	network, rest, err := Split(address)
	if err != nil || network == "unix" {
		return err == nil
	}
	host, _, err := net.SplitHostPort(rest)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// Listen opens an address. A unix socket on which no process listens is replaced, and the new one
// is for this user alone. A socket in use, or a port in use, is a CodeAlreadyRunning error that
// suggests a way out. The directory is locked meanwhile: if two processes open the same stale
// socket at once, one gets it and the other gets that error.
func Listen(address string) (net.Listener, error) {
	network, rest, err := Split(address)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		defer lockDir(filepath.Dir(rest))()
		if err := clearSocket(rest); err != nil {
			return nil, err
		}
	}
	config := net.ListenConfig{}
	if network == "unix" {
		config.Control = forItsUser
	}
	l, err := config.Listen(context.Background(), network, rest)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, plimsoll.Errorf(
			plimsoll.CodeAlreadyRunning, "%s is in use by another process; stop it, or listen on another address", rest,
		)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if network == "unix" {
		if err := os.Chmod(rest, 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("protect the socket %s: %w", rest, err), l.Close())
		}
	}
	return l, nil
}

// forItsUser sets the mode of a socket before its name appears, so that no other user connects
// before Listen has changed the mode.
func forItsUser(_, _ string, conn syscall.RawConn) (err error) {
	var mode error
	err = conn.Control(func(fd uintptr) { mode = syscall.Fchmod(int(fd), 0o600) })
	return errors.Join(err, mode)
}

// lockDir locks a directory until unlock is called or the process ends; other callers wait. A
// directory that cannot be locked, because it does not exist or its file system has no locks, is
// left as it is.
func lockDir(dir string) (unlock func()) {
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return func() {}
	}
	for errors.Is(syscall.Flock(int(d.Fd()), syscall.LOCK_EX), syscall.EINTR) {
		continue // a signal interrupted the call
	}
	return func() { _ = d.Close() } // nothing was written; the lock ends with the descriptor
}

// clearSocket removes a stale socket at path, left by a process that has ended. It removes nothing
// else.
func clearSocket(path string) error {
	if len(path) > maxSocketPath {
		return plimsoll.Invalid(
			"address", "%s is too long a path for a socket; choose one that is %d characters shorter", path,
			len(path)-maxSocketPath,
		)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for a socket left at %s: %w", path, err)
	case info.Mode().Type() != os.ModeSocket:
		return plimsoll.Invalid(
			"address", "%s is there and is not a socket; choose another path, or move it away", path,
		)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		err = c.Close() // opened only to see whether a process listens
	}
	switch {
	case err == nil, errors.Is(err, syscall.EAGAIN): // a full queue of connections means that the process is alive
		return plimsoll.Errorf(plimsoll.CodeAlreadyRunning, "another process answers on %s; stop it first", path)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("find out whether somebody answers on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket left at %s: %w", path, err)
	}
	return nil
}

// Client returns an http.Client that speaks HTTP/2 to one address, and its base URL. It is meant
// for long streams, several on one connection, in both directions at once. The client is safe for
// concurrent use and has no total timeout: streams end by their context.
func Client(address string) (client *http.Client, baseURL string, err error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return newClient(address, &http.Transport{
		Protocols: protocols,
		HTTP2:     &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	})
}

// CallClient is Client over HTTP/1.1, which costs both sides about half as much as HTTP/2 for short
// calls. Each call or stream under way has a connection of its own.
func CallClient(address string) (client *http.Client, baseURL string, err error) {
	return CallClientOver(address, nil)
}

// CallClientOver is CallClient with connections that dial makes; nil: over the network, or to the
// unix socket.
func CallClientOver(address string, dial func(ctx context.Context, address string) (net.Conn, error)) (
	client *http.Client, baseURL string, err error,
) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{Protocols: protocols, MaxIdleConnsPerHost: maxIdleConns, DisableCompression: true}
	client, baseURL, err = newClient(address, t)
	if err == nil && dial != nil {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, address) }
	}
	return client, baseURL, err
}

func newClient(address string, t *http.Transport) (client *http.Client, baseURL string, err error) {
	network, rest, err := Split(address)
	if err != nil {
		return nil, "", err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, rest)
	}
	t.IdleConnTimeout = idleTimeout
	return &http.Client{Transport: refusals{Transport: t}}, urlOf(network, rest), nil
}

// urlOf returns the URL of requests to an address.
func urlOf(network, rest string) string {
	switch {
	case network == "unix":
		return "http://plimsoll"
	case strings.HasPrefix(rest, ":"): // this machine: a request needs a host name
		return "http://localhost" + rest
	}
	return "http://" + rest
}
