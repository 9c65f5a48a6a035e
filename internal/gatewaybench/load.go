package gatewaybench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// openConnections are the connections of planned requests. Requests beyond them wait at the client,
// and their latency counts from their planned instants all the same.
const openConnections = 256

// caller sends one request again and again.
type caller struct {
	url    string
	body   []byte
	client *http.Client
}

func newCaller(address, path string, body []byte, connections int) *caller {
	return &caller{
		url: "http://" + address + path, body: body,
		client: &http.Client{Transport: &http.Transport{
			MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections,
			ReadBufferSize: callerBuffer, DisableCompression: true,
		}},
	}
}

func (c *caller) close() { c.client.CloseIdleConnections() }

// once sends the request and reads its answer through a buffer.
func (c *caller) once(ctx context.Context, buffer []byte) (received int64, err error) {
	received, err = c.copy(ctx, struct{ io.Writer }{io.Discard}, buffer)
	return received, err
}

func (c *caller) copy(ctx context.Context, to io.Writer, buffer []byte) (received int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(c.body))
	if err != nil {
		return 0, fmt.Errorf("make a request: %w", err)
	}
	r.Header.Set("Content-Type", "application/proto")
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, fmt.Errorf("send a request: %w", err)
	}
	received, err = io.CopyBuffer(to, struct{ io.Reader }{resp.Body}, buffer)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer of %s is %s", c.url, resp.Status)
	}
	return received, err
}

const callerBuffer = 64 << 10

// closed sends requests over so many connections for so long, each after the answer to the one
// before, and returns the number of answers.
func (c *caller) closed(ctx context.Context, connections int, lasts time.Duration) (answered int, err error) {
	group, ctx := errgroup.WithContext(ctx)
	var count atomic.Int64
	until := time.Now().Add(lasts)
	for range connections {
		group.Go(func() error {
			buffer := make([]byte, callerBuffer)
			for time.Now().Before(until) {
				if _, err := c.once(ctx, buffer); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err = group.Wait()
	return int(count.Load()), err //nolint:wrapcheck // once names it
}

// planned returns the instants of requests at a mean rate, as many callers who know nothing of each
// other make them. They are the same in each run.
func planned(rate float64, lasts time.Duration) (at []time.Duration) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it is no secret
	for next := 0.0; len(at) < mostRequests; {
		if next += random.ExpFloat64() / rate; next >= lasts.Seconds() {
			break
		}
		at = append(at, time.Duration(next*float64(time.Second)))
	}
	return at
}

// outcome holds the latencies of planned requests.
type outcome struct {
	latencies  []time.Duration // of all requests, sorted
	unanswered int
}

// open sends requests at planned instants. When the time of the plan has passed twice, it gives up
// those without an answer. They count with the time until then.
func (c *caller) open(ctx context.Context, at []time.Duration, lasts time.Duration) (outcome, error) {
	latencies := make([]time.Duration, len(at))
	due := make(chan int, len(at))
	began := time.Now()
	ending, cancel := context.WithDeadline(ctx, began.Add(2*lasts))
	defer cancel()
	var callers sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for range min(openConnections, len(at)) {
		callers.Go(func() {
			buffer := make([]byte, callerBuffer)
			for i := range due {
				if ending.Err() != nil {
					return
				}
				if _, err := c.once(ending, buffer); err != nil {
					if ending.Err() == nil {
						mu.Lock()
						failed = errors.Join(failed, err)
						mu.Unlock()
						cancel()
					}
					return
				}
				latencies[i] = time.Since(began) - at[i]
			}
		})
	}
	send(ending, due, began, at)
	callers.Wait()
	if failed == nil {
		failed = ctx.Err()
	}
	return settle(latencies, at, time.Since(began)), failed
}

// send passes on each request at its instant. Go's timers may be a millisecond late on an idle
// machine, so it sleeps in the kernel.
func send(ctx context.Context, due chan<- int, began time.Time, at []time.Duration) {
	defer close(due)
	for i := range at {
		for left := at[i] - time.Since(began); left > 0 && ctx.Err() == nil; left = at[i] - time.Since(began) {
			pause := unix.NsecToTimespec(int64(min(left, 10*time.Millisecond)))
			_ = unix.Nanosleep(&pause, nil) // it may be interrupted, and is looked after
		}
		if ctx.Err() != nil {
			return
		}
		due <- i // there is room for all
	}
}

// settle counts the requests without an answer.
func settle(latencies, at []time.Duration, ended time.Duration) (o outcome) {
	for i, latency := range latencies {
		if latency == 0 {
			o.unanswered++
			latencies[i] = max(ended-at[i], 0)
		}
	}
	slices.Sort(latencies)
	o.latencies = latencies
	return o
}

// at returns the latency in milliseconds that so many percent of the requests do not exceed.
func (o *outcome) at(percent int) float64 {
	if len(o.latencies) == 0 {
		return 0
	}
	return milliseconds(o.latencies[min(len(o.latencies)*percent/100, len(o.latencies)-1)])
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func median[T float64 | time.Duration](of []T) T {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)/2]
}
