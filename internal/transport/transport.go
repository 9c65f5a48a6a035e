// Package transport carries HTTP/1.1 and HTTP/2 without TLS between Plimsoll's processes, over TCP and over unix sockets.
//
// An address is host:port, http://host:port or unix:/path/of/socket. Listen opens one, Serve answers on it until its context
// ends, and Client makes an http.Client that speaks HTTP/2 to it. The package keeps no state; each Serve owns one goroutine for
// its shutdown. Junk on a port costs one connection for at most ten seconds and 64 KiB of headers.
package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	shutdownGrace     = 2 * time.Second
	dialTimeout       = 5 * time.Second
	maxIdleConns      = 64
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
	if _, _, err := net.SplitHostPort(rest); err != nil {
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
	host, _, _ := net.SplitHostPort(rest)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Listen opens an address. A unix socket that nobody answers is replaced; one that is answered, and a port in use, is a
// CodeAlreadyRunning error that says what to do.
func Listen(address string) (net.Listener, error) {
	network, rest, err := Split(address)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if c, err := net.DialTimeout("unix", rest, time.Second); err == nil {
			_ = c.Close() // it was opened only to see whether somebody answers
			return nil, plimsoll.Errorf(plimsoll.CodeAlreadyRunning, "another process answers on %s; stop it first", rest)
		}
		if err := os.Remove(rest); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove the socket left at %s: %w", rest, err)
		}
	}
	l, err := net.Listen(network, rest)
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

// Serve answers requests on l until ctx ends, then gives requests under way a moment to finish, cuts the rest off and returns
// nil. It always closes l.
func Serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	base, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	server := &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 4096, SendPingTimeout: 15 * time.Second},
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop := time.AfterFunc(shutdownGrace/4, cutOff) // streams end by their context
	defer stop.Stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close() // what did not end in time is cut off; there is nobody to tell
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
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
		HTTP2:     &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
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
	if network == "unix" {
		return &http.Client{Transport: t}, "http://plimsoll", nil
	}
	return &http.Client{Transport: t}, "http://" + rest, nil
}
