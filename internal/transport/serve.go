package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// The stages in which Serve ends. A stream lasts until its context ends, and cannot be told from a
// request that is nearly done. So all requests get requestGrace before their contexts end. Requests
// that ignore the end of their context are cut off.
const (
	requestGrace = 250 * time.Millisecond // until the contexts of requests and streams under way end
	cutOffGrace  = time.Second            // from then on until their connections are closed
	handlerGrace = time.Second            // from then on until Serve leaves a handler behind
	shutdownPoll = 20 * time.Millisecond
)

// server is an http.Server that keeps track of its active connections.
type server struct {
	http   http.Server
	entry  *entry
	cutOff context.CancelFunc

	mu struct {
		sync.Mutex
		active map[net.Conn]struct{} // connections with a request or stream under way
	}
}

func newServer(ctx context.Context, d *entry) *server {
	s := &server{entry: d}
	s.mu.active = map[net.Conn]struct{}{}
	base, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	s.cutOff = cutOff
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = http.Server{
		Handler:                      d,
		Protocols:                    protocols,
		DisableGeneralOptionsHandler: true, // it would bypass the handler
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return withConn(markPeer(ctx, c), c)
		},
		ConnState: s.track,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConnectionStreams,
			SendPingTimeout:      15 * time.Second,
			WriteByteTimeout:     DefaultUnreadTimeout,
		},
	}
	return s
}

// ServeConfig holds the requirements of a listener on its callers.
type ServeConfig struct {
	// Hosts are further hosts that callers may use: names, IP literals or addresses for Listen.
	Hosts []string
	// Access decides by tokens which requests are answered. A TCP listener must have one; AnyCaller
	// admits requests without tokens. A unix socket, which only its user reaches, never requires a
	// token.
	Access *Access
	// Started is called once callers can find the tokens and are answered. It may be nil.
	Started func()
	// Caller is the role of callers without the token of a Grant; see CallerOf.
	Caller Caller
	// Connections bounds the connections of this listener, together with all others that share it;
	// default: NewConnections of a zero ConnectionsConfig.
	Connections *Connections
	// BodyTimeout and BodyRate bound the time in which a request's body must arrive; see Arrival.
	BodyTimeout time.Duration // default DefaultBodyTimeout
	BodyRate    int           // bytes a second; default DefaultBodyRate
	// AnswerTimeout bounds a request from its beginning to its answer's last byte; zero: no bound,
	// unless the handler sets one. A handler with streams is wrapped in TimeAnswers, which exempts
	// them.
	AnswerTimeout time.Duration
}

// Serve answers requests on l until ctx ends. Then it accepts no more and closes idle connections.
// Requests under way have a quarter of a second before their contexts end, which ends streams. A
// second later the rest is cut off, and Serve returns nil. It always closes l.
//
// A TCP listener answers no page in a browser except its own. Requests of other pages get 403, by
// their Host, Origin and Sec-Fetch-Site. The accepted hosts are the IP address at which the request
// arrived, localhost, the name of this machine and Hosts. Then Access decides, before the body is
// read: a request without a valid token gets 401, and one whose token does not allow the path gets
// 403.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, cfg ServeConfig) error {
	if cfg.Connections == nil {
		cfg.Connections = NewConnections(ConnectionsConfig{})
	}
	socket, withdraw := l.Addr().Network() == "unix", func() {}
	if cfg.Access == nil && !socket {
		return errors.Join(
			fmt.Errorf("serve on %s: a TCP listener needs an Access, which decides who may call it", l.Addr()), l.Close(),
		)
	}
	if cfg.Access != nil {
		if err := cfg.Access.prepare(); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	d := newEntry(cfg, socket, handler)
	if !socket { // no browser connects to a unix socket
		d.hosts = newHostPolicy(l.Addr(), machineName(), cfg.Hosts)
		withdraw = cfg.Access.enter(l.Addr())
	}
	if cfg.Started != nil {
		cfg.Started()
	}
	s := newServer(ctx, d)
	s.http.WriteTimeout = cfg.AnswerTimeout
	defer s.cutOff()
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(&listener{l, cfg.Connections, cfg.Caller}) }()
	var err, closeErr error
	select {
	case err = <-ended:
		withdraw()
		closeErr = s.shutdown(ctx)
	case <-ctx.Done():
		withdraw() // while no other process can have the address
		closeErr = s.shutdown(ctx)
		err = <-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	if err = errors.Join(err, closeErr); err != nil {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}

// track keeps the set of active connections. HTTP/2 reports more states to it than net/http itself
// uses: net/http counts such a connection as active until it is closed.
func (s *server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateActive:
		s.mu.active[c] = struct{}{}
	case http.StateIdle, http.StateHijacked, http.StateClosed:
		delete(s.mu.active, c)
	case http.StateNew: // the connection has sent no request yet
	}
}

func (s *server) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.active) == 0
}

// shutdown ends the requests under way. http.Server.Shutdown alone would poll only twice a second,
// and wait seconds for a connection that has sent nothing.
func (s *server) shutdown(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	cut := time.AfterFunc(requestGrace, s.cutOff)
	defer cut.Stop()
	var err error
	for limit, done := time.Now().Add(requestGrace+cutOffGrace), false; !done; {
		done = s.quiet() || time.Now().After(limit) // one more round, so that the last answers leave their buffers
		look, cancel := context.WithTimeout(ctx, shutdownPoll)
		err = s.http.Shutdown(look)
		cancel()
		if done = done || err == nil; errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
	}
	s.cutOff()
	_ = s.http.Close() // the rest is cut off; nobody can use the error
	for limit := time.Now().Add(handlerGrace); s.entry.calls.Load() > 0 && time.Now().Before(limit); {
		<-time.After(time.Millisecond)
	}
	return err
}
