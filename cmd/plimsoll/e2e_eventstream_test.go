package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// streamReader follows the stream of events as a program of somebody else does: with the address,
// the parameters and JSON. Whenever the stream breaks it goes on behind the last whole line.
type streamReader struct {
	t        testing.TB
	client   *http.Client
	url      string
	instance string // of its ids
	breaks   int
	failed   error
	end      context.CancelFunc
	group    sync.WaitGroup

	mu struct {
		sync.Mutex
		lines []string // the events from 0 on
	}
}

func (r *streamReader) next() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.lines)
}

// followStream starts a reader, which begins with the first event there is.
func (s *site) followStream() *streamReader {
	s.t.Helper()
	c, url, err := transport.Client(s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	r := &streamReader{t: s.t, client: c, url: url}
	ctx, cancel := context.WithCancel(context.Background())
	r.end = cancel
	r.group.Go(func() {
		for ctx.Err() == nil && r.failed == nil {
			r.failed = r.follow(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	s.t.Cleanup(r.stop)
	return r
}

func (r *streamReader) stop() {
	r.end()
	r.group.Wait()
	r.client.CloseIdleConnections()
}

// follow reads one stream to its end. An error is one of the contents: a stream may break anywhere.
func (r *streamReader) follow(ctx context.Context) error {
	body, err := r.get(ctx, fmt.Sprintf("%s?start=%d&instance=%s", rest.StreamPath, r.next(), r.instance))
	if err != nil {
		return nil //nolint:nilerr // there is no leader
	}
	defer body.Close() //nolint:errcheck // it was read to its end
	from := bufio.NewReader(body)
	first, err := from.ReadBytes('\n')
	if err != nil {
		return nil //nolint:nilerr // it broke
	}
	var head struct {
		InstanceUUID    string
		FirstID, Missed uint64
	}
	if err := json.Unmarshal(first, &head); err != nil {
		return fmt.Errorf("the first line %s: %w", first, err)
	}
	if r.instance == "" {
		r.instance = head.InstanceUUID
	}
	if head.InstanceUUID != r.instance || head.FirstID != uint64(r.next()) || head.Missed > 0 {
		return fmt.Errorf("the reader wants the event %d of %s, and gets %s", r.next(), r.instance, first)
	}
	for {
		line, err := from.ReadBytes('\n')
		if err != nil {
			r.breaks++
			return nil //nolint:nilerr // it broke, perhaps in a line
		}
		if bytes.HasPrefix(line, []byte(`{"status_code"`)) {
			return fmt.Errorf("the stream ends with %s", line)
		}
		r.mu.Lock()
		r.mu.lines = append(r.mu.lines, string(bytes.TrimSpace(line)))
		r.mu.Unlock()
	}
}

// get asks for a path; the status must be 200.
func (r *streamReader) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("status %d", answer.StatusCode)
	}
	return answer.Body, nil
}

// check waits until the reader has all events, ends it, and compares its lines with the batches.
func (r *streamReader) check() {
	r.t.Helper()
	var page struct {
		InstanceUUID string
		HighestID    uint64
		EventRecords []json.RawMessage
	}
	var want []string
	for {
		body, err := r.get(r.t.Context(), fmt.Sprintf("/ws/v1/events/batch?start=%d", len(want)))
		if err != nil {
			r.t.Fatal(err)
		}
		page.EventRecords = nil
		err = json.NewDecoder(body).Decode(&page)
		_ = body.Close()
		if err != nil {
			r.t.Fatal(err)
		}
		if len(page.EventRecords) == 0 {
			break
		}
		for _, record := range page.EventRecords {
			want = append(want, string(record))
		}
	}
	eventually(r.t, "read all events", func() error {
		if n := r.next(); n < len(want) {
			return fmt.Errorf("%d of %d", n, len(want))
		}
		return nil
	})
	r.stop()
	if r.failed != nil {
		r.t.Fatal(r.failed)
	}
	if page.InstanceUUID != r.instance || r.breaks == 0 {
		r.t.Errorf("the instance is %s, it was %s; the stream broke %d times", page.InstanceUUID, r.instance, r.breaks)
	}
	if got := r.mu.lines[:len(want)]; !slices.Equal(got, want) {
		for i := range want {
			if got[i] != want[i] {
				r.t.Fatalf("the event %d is %s in the stream, and %s in a batch", i, got[i], want[i])
			}
		}
	}
	r.t.Logf("%d events over %d breaks", len(want), r.breaks)
}
