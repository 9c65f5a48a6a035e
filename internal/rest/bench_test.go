package rest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
)

// publishAllocations adds turns of usual events: allocations with three resources, about 300 bytes
// of JSON each.
func (l *live) publishAllocations(turns, each int) {
	r := plimsoll.Resources{plimsoll.CPU: 500, plimsoll.Memory: 64 << 20, plimsoll.Disk: 1 << 30}
	for range turns {
		l.mu.Lock()
		for i := range uint64(each) {
			id := l.mu.next + i
			l.mu.encoder.Append(&plimsoll.Event{
				Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Detail: plimsoll.AppAlloc,
				Time: 1_800_000_000_123_456_789, Resources: r, Object: fmt.Sprintf("pipeline-%07d", id/100),
				Reference: fmt.Sprintf("pipeline-%07d.main.%d", id/100, id%100),
			})
		}
		l.mu.ring.Append(l.mu.next, uint64(each), l.mu.encoder.Finish(nil))
		l.mu.next += uint64(each)
		l.tell()
		l.mu.Unlock()
	}
}

// follow opens a stream over TCP and counts its lines, the first one included, until a number of
// them have come.
func follow(b *testing.B, url string, wanted int) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Error(err)
		return
	}
	r.Header.Set("Accept-Encoding", "identity")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Error(err)
		return
	}
	defer answer.Body.Close() //nolint:errcheck // it is cut off
	from := bufio.NewReaderSize(answer.Body, 256<<10)
	for got := 0; got < wanted; {
		piece, err := from.Peek(1)
		if err != nil {
			b.Error(err)
			return
		}
		piece, _ = from.Peek(max(len(piece), from.Buffered())) // it is there
		got += bytes.Count(piece, []byte{'\n'})
		_, _ = from.Discard(len(piece)) // the same
	}
}

// overTCP measures a request of events. In "first" the handler has rendered none of them before.
func overTCP(b *testing.B, events int, path string, ask func(url string)) {
	b.Helper()
	for _, name := range []string{"first", "again"} {
		b.Run(name, func(b *testing.B) {
			l := newLive(events, 0)
			l.publishAllocations(events/100, 100)
			server := httptest.NewServer(rest.New(rest.Config{RenderedBytes: 64 << 20}, l))
			defer server.Close()
			ask(server.URL + path)
			for b.Loop() {
				if name == "first" {
					b.StopTimer()
					server.Config.Handler = rest.New(rest.Config{RenderedBytes: 64 << 20}, l)
					b.StartTimer()
				}
				ask(server.URL + path)
			}
			b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/answer")
		})
	}
}

// BenchmarkRESTBatch asks for 10,000 events over TCP, and reads the answer.
func BenchmarkRESTBatch(b *testing.B) {
	overTCP(b, 10_000, batch, func(url string) {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", "identity")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, answer.Body)
		if err != nil || n < 2_000_000 {
			b.Fatal(n, err)
		}
		_ = answer.Body.Close() // it has been read
	})
}

// BenchmarkStreamHistory sends 100,000 events of before to one stream over TCP.
func BenchmarkStreamHistory(b *testing.B) {
	const events = 100_000
	overTCP(b, events, rest.StreamPath+fmt.Sprint("?count=", events), func(url string) { follow(b, url, events) })
}

// BenchmarkStreamLive publishes 40,000 events in turns of 100, as fast as it goes, to 100 streams
// over TCP.
func BenchmarkStreamLive(b *testing.B) {
	const streams, each, turns = 100, 100, 400
	for b.Loop() {
		l := newLive(100_000, 0)
		server := httptest.NewServer(rest.New(rest.Config{}, l))
		var group sync.WaitGroup
		for range streams {
			group.Go(func() { follow(b, server.URL+rest.StreamPath, 1+each*turns) })
		}
		for {
			l.mu.Lock()
			open := len(l.mu.changed)
			l.mu.Unlock()
			if open == streams {
				break
			}
			runtime.Gosched()
		}
		began := time.Now()
		l.publishAllocations(turns, each)
		group.Wait()
		b.ReportMetric(streams*each*turns/time.Since(began).Seconds(), "deliveries/s")
		server.Close()
	}
}
