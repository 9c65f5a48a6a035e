package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

const (
	// attemptEvery is the time after which a second attempt to reach the leader begins beside the
	// first. So a lost attempt costs no more than that, and a slow leader is still reached.
	attemptEvery = 2 * time.Second
	// linkGrace is how much later than a new connection the current one may answer a check, and
	// still be kept.
	linkGrace = time.Second
	// closedPause is the longest pause while nobody listens at the leader's address. Such an
	// attempt costs the leader nothing, and a leader is often about to listen again.
	closedPause = 250 * time.Millisecond
)

// dial connects to an address. The connection that it returns is unused.
type dial func(ctx context.Context, address string) (*transport.ConnClient, error)

// reachAt returns a connection on which the process at an address has answered. It fails with the
// first attempt that fails, or if no attempt is answered within helloTimeout.
//
// The process is asked with GET /readyz, which changes nothing there. A hello would: it makes the
// leader give up the nodes of the gateway's older stream. So no hello is sent on a connection that
// may not be used.
func (f *Follower) reachAt(ctx context.Context, address string) (reached, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, helloTimeout, errSilent)
	type attempt struct {
		reached
		err error
	}
	attempts := make(chan attempt)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	begin := func() {
		var a attempt
		if a.conn, a.err = f.dial(ctx, address); a.err == nil {
			if a.err = a.ask(ctx); a.err != nil {
				a.conn.Cut()
			}
		}
		select {
		case attempts <- a:
		case <-ctx.Done():
			if a.err == nil {
				a.conn.Cut()
			}
		}
	}
	ticker := time.NewTicker(attemptEvery)
	defer ticker.Stop()
	for {
		group.Go(begin)
		select {
		case a := <-attempts:
			if a.err != nil {
				return reached{}, unreached(ctx, a.err)
			}
			return a.reached, nil
		case <-ctx.Done():
			return reached{}, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// maxSaid bounds the part of an answer that says why a process is not ready.
const maxSaid = 512

// ask returns nil once the process has answered a cheap question, and notes the answer. Any answer
// proves that the process is alive.
func (r *reached) ask(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.conn.URL+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the leader whether it is there: %w", err)
	}
	response, err := r.conn.HTTP.Do(request)
	if err != nil {
		return err //nolint:wrapcheck // unreached wraps it
	}
	said, _ := io.ReadAll(io.LimitReader(response.Body, maxSaid)) // the status is the answer
	_ = response.Body.Close()                                     // as above
	r.ready, r.said = response.StatusCode == http.StatusOK, strings.TrimSpace(string(said))
	if leader := response.Header.Get(HeaderLeader); !r.ready && leader != "" {
		if _, _, err := transport.Split(leader); err == nil {
			r.leader = leader
		}
	}
	return nil
}

// unreached returns the error of an attempt to reach the leader.
func unreached(ctx context.Context, err error) error {
	var refusal *plimsoll.Error
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		return errSilent
	case errors.As(err, &refusal):
		return fmt.Errorf("connect to the leader: %w", refusal)
	}
	return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Op: "connect to the leader", Err: err}
}

// errSilent, errLost and errReplaced are the causes with which a connection is given up.
var (
	errSilent = plimsoll.Errorf(plimsoll.CodeUnavailable, "the leader did not answer within %s", helloTimeout)
	errLost   = plimsoll.Errorf(plimsoll.CodeUnavailable,
		"nothing has come from the leader for %s, not even the answer to a ping", lostAfter*silenceTick)
	errReplaced = plimsoll.Errorf(plimsoll.CodeUnavailable,
		"the leader answers on a new connection and not on this one, which is given up")
)

// monitor checks the connection of a stream until ctx ends or the connection is given up. In the
// latter case err is the cause, and next is the connection to continue with, or nil.
func (f *Follower) monitor(ctx context.Context, conn *transport.ConnClient) (next *transport.ConnClient, err error) {
	ctx, cancel := context.WithCancel(ctx)
	compared := make(chan *transport.ConnClient, 1) // result of compare, while checking is true
	var group sync.WaitGroup
	defer func() {
		cancel()
		group.Wait()
		select {
		case unused := <-compared:
			if unused != nil {
				unused.Cut()
			}
		default:
		}
	}()
	ticker := time.NewTicker(silenceTick)
	defer ticker.Stop()
	var s silence
	checking := false
	for {
		var check, lost bool
		select {
		case <-ctx.Done():
			return nil, nil //nolint:nilnil // the stream has ended, and its cause is known elsewhere
		case <-f.suspect:
			check = s.suspect()
		case <-ticker.C:
			check, lost = s.tick(conn.Heard())
		case standby := <-compared:
			if checking = false; standby != nil {
				return standby, errReplaced
			}
		}
		if lost {
			return nil, errLost
		}
		if check && !checking {
			checking = true
			group.Go(func() { compared <- f.compare(ctx, conn) })
		}
	}
}

// compare asks the leader over the current connection and over a new one, in parallel. It returns
// the new one if that one is answered, and the current one is not within linkGrace after it.
func (f *Follower) compare(ctx context.Context, conn *transport.ConnClient) *transport.ConnClient {
	ctx, cancel := context.WithCancel(ctx)
	alive := make(chan struct{})
	came := make(chan *transport.ConnClient, 1)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() {
		if (&reached{conn: conn}).ask(ctx) == nil {
			close(alive)
		}
	})
	group.Go(func() {
		standby, err := f.reach(ctx)
		if err != nil {
			standby = nil // the leader cannot be reached on a new connection
		}
		came <- standby
	})
	var standby *transport.ConnClient
	select {
	case <-alive:
		cancel()
		standby = <-came
	case standby = <-came:
	}
	if standby == nil {
		return nil
	}
	grace := time.NewTimer(linkGrace)
	defer grace.Stop()
	select {
	case <-alive:
	case <-ctx.Done():
	case <-grace.C:
		return standby
	}
	standby.Cut()
	return nil
}

// redial computes the pauses between attempts to reach the leader.
type redial struct {
	closed   plimsoll.Backoff // while nobody listens
	refused  plimsoll.Backoff // while the leader is reached and refuses the stream
	failures int              // failures in a row of the same kind
	listens  bool             // at the last failure a process listened
}

// notListening are the errors of a connection to an address at which nobody listens. The last three
// of the system's come from a proxy in front of such an address. Several addresses of which none
// leads count as well: a look at them costs nobody much, and one of them is about to lead.
var notListening = []error{
	syscall.ECONNREFUSED, syscall.ENOENT, syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF, errNoLeader,
}

func newRedial(first, longest time.Duration) *redial {
	return &redial{
		closed:  plimsoll.Backoff{First: first, Longest: min(longest, max(first, closedPause))},
		refused: plimsoll.Backoff{First: first, Longest: longest},
	}
}

// after returns the pause after a stream that ended with err. wasLive reports that the copy was
// live on that stream. The pause is short when an address has just begun or ceased to answer.
func (r *redial) after(wasLive bool, err error, random func(int64) int64) time.Duration {
	listens := !slices.ContainsFunc(notListening, func(closed error) bool { return errors.Is(err, closed) })
	if wasLive || listens != r.listens {
		r.failures = 0
	}
	r.failures++
	r.listens = listens
	if listens {
		return r.refused.Jittered(r.failures, random)
	}
	return r.closed.Jittered(r.failures, random)
}
