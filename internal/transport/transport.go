// Package transport carries HTTP/1.1 and HTTP/2 without TLS between Plimsoll's processes, over TCP
// and over unix sockets. Over TCP it answers no page in a browser but its own, and callers by their
// tokens: see Serve and Access.
//
// An address is host:port, http://host:port or unix:/path/of/socket. Listen opens one, Serve
// answers on it until its context ends, and Client makes an http.Client that speaks HTTP/2 to it.
// The package keeps no state; each Serve owns the goroutines of its server, and they have ended
// when it returns. Junk on a port costs a connection and 64 KiB of headers: one that does not say
// what it wants is cut off after ten seconds, and one that wants nothing more after two minutes.
//
// Bounds, each with a test: connections, for users and for agents apart, in all and for each peer
// (Connections); 256 requests at a time on a connection of HTTP/2; the time in which a body must
// come (Arrival); the time in which an answer or a stream must be taken (TimeAnswers). A new
// connection takes the place of one that keeps nobody waiting, so that whoever sends half a request
// keeps nobody out.
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
	pingAfter         = 10 * time.Second // of silence on a client's connection
	pingTimeout       = 5 * time.Second
	maxIdleConns      = 64
	// maxConnectionStreams is how many requests and streams one connection of HTTP/2 may have under
	// way. A client of Go opens another connection beyond it.
	maxConnectionStreams = 256
	maxSocketPath        = 107 // the kernel's bound, in bytes
)

// Split takes an address apart into a network ("tcp" or "unix") and what follows.
func Split(address string) (network, rest string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path = strings.TrimPrefix(path, "//"); path == "" {
			return "", "", plimsoll.Invalid("address", "%q has no path; write for example unix:/run/plimsoll.sock", address)
		}
		return "unix", path, nil
	}
	rest = strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
	_, port, err := net.SplitHostPort(rest)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", "", plimsoll.Invalid("address", "%q is not an address; write for example 127.0.0.1:9080 or unix:/run/plimsoll.sock", address)
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

// Listen opens an address. A unix socket that nobody answers is replaced, and the new one is for this user alone; a socket that
// is answered, and a port in use, is a CodeAlreadyRunning error that says what to do. Of two processes that open the same stale
// socket at the same instant one gets it, and the other that error: the directory is locked meanwhile.
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
		return nil, plimsoll.Errorf(plimsoll.CodeAlreadyRunning, "%s is in use by another process; stop it, or listen on another address", rest)
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

// forItsUser gives a socket the mode with which its name will appear, so that nobody else gets in before Listen has changed it.
func forItsUser(_, _ string, conn syscall.RawConn) (err error) {
	var mode error
	err = conn.Control(func(fd uintptr) { mode = syscall.Fchmod(int(fd), 0o600) })
	return errors.Join(err, mode)
}

// lockDir keeps all others who call it for a directory waiting until unlock is called or the process ends. A directory that cannot
// be locked, because it is not there or because its file system has no such locks, is left as it is.
func lockDir(dir string) (unlock func()) {
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return func() {}
	}
	for errors.Is(syscall.Flock(int(d.Fd()), syscall.LOCK_EX), syscall.EINTR) {
		continue // it was only interrupted
	}
	return func() { _ = d.Close() } // it was only read, and the lock goes with it
}

// clearSocket removes the socket that a process which is gone left at path, and nothing else.
func clearSocket(path string) error {
	if len(path) > maxSocketPath {
		return plimsoll.Invalid("address", "%s is too long a path for a socket; choose one that is %d characters shorter", path, len(path)-maxSocketPath)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for a socket left at %s: %w", path, err)
	case info.Mode().Type() != os.ModeSocket:
		return plimsoll.Invalid("address", "%s is there and is not a socket; choose another path, or move it away", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		err = c.Close() // it was opened only to see whether somebody answers
	}
	switch {
	case err == nil, errors.Is(err, syscall.EAGAIN): // whose queue of connections is full is alive
		return plimsoll.Errorf(plimsoll.CodeAlreadyRunning, "another process answers on %s; stop it first", path)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("find out whether somebody answers on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket left at %s: %w", path, err)
	}
	return nil
}

// Client returns an http.Client that speaks HTTP/2 to one address, and the base URL to use with it: for long streams, several of
// them on one connection, both ways at once. The client is safe for concurrent use and has no total timeout: streams end by their
// context.
func Client(address string) (client *http.Client, baseURL string, err error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return newClient(address, &http.Transport{
		Protocols: protocols,
		HTTP2:     &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	})
}

// CallClient is Client over HTTP/1.1, which costs both sides about half of what HTTP/2 does for short calls. Each call or stream
// that is under way has a connection of its own.
func CallClient(address string) (client *http.Client, baseURL string, err error) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return newClient(address, &http.Transport{Protocols: protocols, MaxIdleConnsPerHost: maxIdleConns, DisableCompression: true})
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
	return &http.Client{Transport: refusals{t}}, urlOf(network, rest), nil
}

// urlOf returns the URL of requests to an address.
func urlOf(network, rest string) string {
	switch {
	case network == "unix":
		return "http://plimsoll"
	case strings.HasPrefix(rest, ":"): // this machine, which a request must name
		return "http://localhost" + rest
	}
	return "http://" + rest
}
