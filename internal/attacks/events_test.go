package attacks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

const eventStream = "/ws/v1/events/stream"

// eventStreams asks for streams of events: some are never read, some get a byte a second, and some
// begin all history anew as soon as it comes. A reader that was there before gets each event once.
func eventStreams(t *testing.T, f *fleet) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	good := f.followEvents(ctx, t)
	var rogues sync.WaitGroup
	for n := range testrun.Count(60, 300, 1_000) {
		rogues.Go(func() { f.rogueStream(ctx, t, n%3) })
	}
	pause(ctx, holdTime())
	f.eventually("hand on every event", func() error { return f.handedOn(t, good) })
	cancel()
	rogues.Wait()
	if err := good.ended(); err != nil {
		t.Error(err)
	}
	if got, _ := good.next(); got == 0 {
		t.Error("the good reader got nothing, so nothing was compared")
	}
}

// rogueStream is one bad reader, until ctx ends.
func (f *fleet) rogueStream(ctx context.Context, t *testing.T, kind int) {
	opening := "GET " + eventStream + "?count=100000 HTTP/1.1\r\nHost: " + f.gateway + "\r\nAuthorization: Bearer " +
		f.userToken(t) + "\r\n\r\n"
	for ctx.Err() == nil {
		conn := f.dial(t, f.gateway)
		if conn == nil {
			pause(ctx, time.Second)
			continue
		}
		_, _ = io.WriteString(conn, opening) // the other side may have closed it
		switch one := make([]byte, 1); kind {
		case 0:
			<-ctx.Done()
		case 1:
			for ctx.Err() == nil {
				if _, err := conn.Read(one); err != nil {
					break
				}
				pause(ctx, time.Second)
			}
		default:
			_ = conn.SetReadDeadline(time.Now().Add(time.Second)) // it is open
			_, _ = conn.Read(one)                                 // a refusal is an answer too
		}
		_ = conn.Close() // the other side may have closed it
	}
}

// goodReader reads a stream as fast as it comes.
type goodReader struct {
	done chan struct{}

	mu    sync.Mutex
	lines uint64 // events so far
	begin uint64 // id of the first one
	err   error  // of a stream that has ended by itself
}

// followEvents follows the events that come from now on.
func (f *fleet) followEvents(ctx context.Context, t *testing.T) *goodReader {
	t.Helper()
	req := f.request(ctx, t, call{method: http.MethodGet, path: eventStream, token: f.userToken(t), body: http.NoBody})
	res, err := (&http.Client{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReaderSize(res.Body, 1<<20)
	var head struct{ FirstID uint64 }
	line, err := lines.ReadBytes('\n')
	if err = errors.Join(err, json.Unmarshal(line, &head)); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s: %v", res.StatusCode, line, err)
	}
	g := &goodReader{done: make(chan struct{}), begin: head.FirstID}
	go func() {
		defer close(g.done)
		defer func() { _ = res.Body.Close() }() // ctx cuts it
		for {
			line, err := lines.ReadBytes('\n')
			if ctx.Err() != nil {
				return
			}
			if err == nil && bytes.HasPrefix(line, []byte(`{"status_code"`)) {
				err = fmt.Errorf("the stream says %s", line)
			}
			g.mu.Lock()
			if g.err = err; err == nil {
				g.lines++
			}
			g.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return g
}

// next returns how many events have come, and the id of the next one.
func (g *goodReader) next() (lines, id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lines, g.begin + g.lines
}

// ended waits for the reader, and returns why its stream ended before it was cut.
func (g *goodReader) ended() error {
	<-g.done
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// handedOn returns an error until the reader has the newest event. A request may find no free
// connection beside the bad readers.
func (f *fleet) handedOn(t *testing.T, g *goodReader) error {
	t.Helper()
	a := f.do(t, call{
		method: http.MethodGet, path: "/ws/v1/events/batch?count=1", token: f.userToken(t), body: http.NoBody,
	})
	var batch struct{ HighestID uint64 }
	if err := json.Unmarshal([]byte(a.text), &batch); err != nil {
		return fmt.Errorf("ask for the newest event: %s: %w", a, err)
	}
	if lines, next := g.next(); next <= batch.HighestID {
		return fmt.Errorf("%d events came, up to %d; the newest is %d", lines, next, batch.HighestID)
	}
	return nil
}
