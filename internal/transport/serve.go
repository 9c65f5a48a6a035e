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

// How Serve ends. A stream lasts until its context ends, and nothing tells it from a request that
// is nearly done; so all get a short while before their context ends, and what does not heed even
// that is cut off.
const (
	requestGrace = 250 * time.Millisecond // until the contexts of requests and streams under way end
	cutOffGrace  = time.Second            // from then on until their connections are closed
	handlerGrace = time.Second            // from then on until Serve leaves a handler behind
	shutdownPoll = 20 * time.Millisecond
)

// server is an http.Server that knows what is under way.
type server struct {
	http   http.Server
	door   *door
	cutOff context.CancelFunc

	mu struct {
		sync.Mutex
		active map[net.Conn]struct{} // connections with a request or stream under way
	}
}

func newServer(ctx context.Context, d *door) *server {
	s := &server{door: d}
	s.mu.active = map[net.Conn]struct{}{}
	base, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	s.cutOff = cutOff
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = http.Server{
		Handler:                      d,
		Protocols:                    protocols,
		DisableGeneralOptionsHandler: true, // it would answer past the handler
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  func(ctx context.Context, c net.Conn) context.Context { return withConn(markPeer(ctx, c), c) },
		ConnState:                    s.track,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConnectionStreams, SendPingTimeout: 15 * time.Second, WriteByteTimeout: DefaultUnreadTimeout,
		},
	}
	return s
}

// ServeConfig sets up what a listener asks of its callers.
type ServeConfig struct {
	// Hosts are further hosts that callers may use, each a name, an IP literal or an address such
	// as Listen takes.
	Hosts []string
	// Access says whose requests are answered, by their tokens. A listener of TCP must have one;
	// AnyCaller is for those that want no token. A unix socket, which only its user reaches, wants
	// none either way.
	Access *Access
	// Started is called when callers can find the tokens and are answered; nil: nobody is told.
	Started func()
	// Caller is the part that callers of this listener have if nothing else tells it. CallerOf
	// returns it.
	Caller Caller
	// Connections bounds the connections of this listener and of all others that it is given to;
	// default: NewConnections of a zero ConnectionsConfig.
	Connections *Connections
	// BodyTimeout and BodyRate are the time in which a request's body must come; see Arrival.
	BodyTimeout time.Duration // default DefaultBodyTimeout
	BodyRate    int           // bytes a second; default DefaultBodyRate
	// AnswerTimeout is from the beginning of a request to its answer's last byte; zero: there is
	// none, unless the handler sets one. A handler of streams stands behind TimeAnswers, which
	// frees them of it.
	AnswerTimeout time.Duration
}

// Serve answers requests on l until ctx ends. Then it takes no more, closes the connections that
// are idle, gives requests under way a quarter of a second before their contexts end, which ends
// streams, cuts off what is left a second later, and returns nil. It always closes l.
//
// On a listener of TCP the handler sees only requests that a page in a browser cannot have made,
// except a page of this listener itself: others get 403, by their Host, Origin and Sec-Fetch-Site.
// Hosts are the IP address at which the request arrived, localhost, the name of this machine and
// those of the configuration. After that Access decides, before anything of the body is read:
// others get 401, or 403 if their token is for something else.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, cfg ServeConfig) error {
	if cfg.Connections == nil {
		cfg.Connections = NewConnections(ConnectionsConfig{})
	}
	socket, withdraw := l.Addr().Network() == "unix", func() {}
	if cfg.Access == nil && !socket {
		return errors.Join(fmt.Errorf("serve on %s: a listener of TCP needs an Access, which says whom it answers", l.Addr()), l.Close())
	}
	if cfg.Access != nil {
		if err := cfg.Access.prepare(); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	d := newDoor(cfg, socket, handler)
	if !socket { // no browser speaks to a socket of a file
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
		withdraw() // as long as nobody else can have the address
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

// track keeps the set of active connections. HTTP/2 tells it more than net/http itself knows, which
// takes such a connection for active until it is closed.
func (s *server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateActive:
		s.mu.active[c] = struct{}{}
	case http.StateIdle, http.StateHijacked, http.StateClosed:
		delete(s.mu.active, c)
	case http.StateNew: // it has not asked for anything yet
	}
}

func (s *server) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.active) == 0
}

// shutdown ends what is under way. Left to itself, http.Server.Shutdown would look only twice a
// second, and wait seconds for a connection that never said a word.
func (s *server) shutdown(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	cut := time.AfterFunc(requestGrace, s.cutOff)
	defer cut.Stop()
	var err error
	for limit, done := time.Now().Add(requestGrace+cutOffGrace), false; !done; {
		done = s.quiet() || time.Now().After(limit) // then once more, so that the last answers leave their buffers
		look, cancel := context.WithTimeout(ctx, shutdownPoll)
		err = s.http.Shutdown(look)
		cancel()
		if done = done || err == nil; errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
	}
	s.cutOff()
	_ = s.http.Close() // what did not end in time is cut off; there is nobody to tell
	for limit := time.Now().Add(handlerGrace); s.door.calls.Load() > 0 && time.Now().Before(limit); {
		<-time.After(time.Millisecond)
	}
	return err
}
