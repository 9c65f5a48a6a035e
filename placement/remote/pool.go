package remote

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Source has the functions that find the instances of servers.
type Source struct {
	// Instances returns the instances of a server.
	Instances func(ctx context.Context, server string) ([]placement.Instance, error)
	// Instance returns the server of an instance and the instance's owner; nil: instances are not
	// found by id.
	Instance func(ctx context.Context, id string) (server, owner string, err error)
	// Group returns the instances of a group of a job, by server; nil: the instances of all servers
	// are loaded and searched.
	Group func(ctx context.Context, job, group string) (map[string][]placement.Instance, error)
}

// Options bound the calls of a Pool.
type Options struct {
	Parallel int           // calls at a time; 0: 16
	Timeout  time.Duration // time for each call; 0: two seconds
	Late     int           // calls that may go on after their time, in addition; 0: as Parallel
}

// The defaults of Options.
const (
	DefaultParallel = 16
	DefaultTimeout  = 2 * time.Second
)

// Pool bounds calls. It is safe for concurrent use, and all callers of one source should share it.
type Pool struct {
	timeout time.Duration
	waited  chan struct{} // a token for each call with a waiting caller
	alive   chan struct{} // a token for each call that has not returned
}

// NewPool returns a pool without calls.
func NewPool(o Options) (*Pool, error) {
	if o.Parallel < 0 || o.Timeout < 0 || o.Late < 0 {
		return nil, plimsoll.Invalid(
			"options", "parallel, timeout and late cannot be negative; 0 is the default of each",
		)
	}
	if o.Parallel == 0 {
		o.Parallel = DefaultParallel
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Late == 0 {
		o.Late = o.Parallel
	}
	return &Pool{
		timeout: o.Timeout, waited: make(chan struct{}, o.Parallel), alive: make(chan struct{}, o.Parallel+o.Late),
	}, nil
}

// Wait closes the pool. It returns when every call has returned, late ones included, and fails if
// ctx ends before. New calls fail from then on.
func (p *Pool) Wait(ctx context.Context) error {
	for i := range cap(p.alive) {
		select {
		case p.alive <- struct{}{}:
		case <-ctx.Done():
			left := len(p.alive) - i
			for range i {
				<-p.alive
			}
			return fmt.Errorf("wait for %d calls that have not returned: %w", left, context.Cause(ctx))
		}
	}
	return nil
}

// Loader returns the loader of a fleet. Its functions call the source within the bounds of the
// pool, and not after ctx has ended. A call that fails, or does not answer in time, drops its one
// server.
func (p *Pool) Loader(ctx context.Context, s Source) placement.Loader {
	l := placement.Loader{Within: p.timeout}
	if s.Instances != nil {
		l.Batch = func(servers []string) []placement.Loaded { return p.batch(ctx, s, servers) }
	}
	if s.Instance != nil {
		l.Instance = func(id string) (string, string, error) {
			found, err := call(ctx, p, func(ctx context.Context) (location, error) {
				server, owner, err := s.Instance(ctx, id)
				return location{server, owner}, err
			})
			return found.server, found.owner, err
		}
	}
	return l
}

// Bound returns the Batch function of a Loader with its own pool, for a fleet that lives as long as
// the process. Set the Loader's Within to the timeout of the options.
func Bound(
	f func(ctx context.Context, server string) ([]placement.Instance, error), o Options,
) (func([]string) []placement.Loaded, error) {
	p, err := NewPool(o)
	if err != nil {
		return nil, err
	}
	return p.Loader(context.Background(), Source{Instances: f}).Batch, nil
}

type location struct{ server, owner string }

// batch loads the instances of servers, as many at a time as the pool allows.
func (p *Pool) batch(ctx context.Context, s Source, servers []string) []placement.Loaded {
	out := make([]placement.Loaded, len(servers))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(cap(p.waited), len(servers)) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(servers) {
					return
				}
				out[i].Instances, out[i].Err = call(ctx, p, func(ctx context.Context) ([]placement.Instance, error) {
					return s.Instances(ctx, servers[i])
				})
			}
		})
	}
	workers.Wait()
	return out
}

// call calls f within the bounds of the pool. It returns when f has returned or its time is over;
// in that case f may go on.
func call[T any](ctx context.Context, p *Pool, f func(context.Context) (T, error)) (T, error) {
	var none T
	select {
	case p.waited <- struct{}{}:
		defer func() { <-p.waited }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return none, givenUp(ctx)
	}
	select {
	case p.alive <- struct{}{}:
	default:
		return none, plimsoll.Errorf(
			plimsoll.CodeExhausted, "%d earlier calls have not returned; no more are made until they have",
			cap(p.alive),
		)
	}
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1) // buffered, so that a late answer does not block its goroutine
	go func() {
		defer func() { <-p.alive }()
		value, err := f(limited)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil && limited.Err() != nil && ctx.Err() == nil {
			return none, p.late()
		}
		return a.value, a.err
	case <-limited.Done():
		if ctx.Err() != nil {
			return none, givenUp(ctx)
		}
		return none, p.late()
	}
}

func (p *Pool) late() error {
	return plimsoll.Errorf(plimsoll.CodeDeadline, "there was no answer within %s", p.timeout)
}

func givenUp(ctx context.Context) error { return fmt.Errorf("given up: %w", context.Cause(ctx)) }
