package rest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// live is a Source with a ring that goes on. The object of each event is its id.
type live struct {
	mu struct {
		sync.Mutex
		ring     *ring.Ring
		encoder  ring.Encoder
		instance string
		next     uint64
		changed  map[chan struct{}]bool
	}
}

func newLive(capacity, events int) *live {
	l := &live{}
	l.mu.ring, l.mu.instance, l.mu.changed = ring.New(capacity), instance, map[chan struct{}]bool{}
	l.publish(events)
	return l
}

// publish adds events in turns of at most three.
func (l *live) publish(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n > 0 {
		turn := min(n, 1+int(l.mu.next%3))
		for i := range turn {
			l.mu.encoder.Append(&plimsoll.Event{
				Type: plimsoll.EventApp, Change: plimsoll.ChangeSet, Detail: plimsoll.AppRunning, Time: 1_800_000_000e9,
				Object: strconv.FormatUint(l.mu.next+uint64(i), 10),
			})
		}
		l.mu.ring.Append(l.mu.next, uint64(turn), l.mu.encoder.Finish(nil))
		l.mu.next += uint64(turn)
		n -= turn
	}
	l.tell()
}

// anew is the work of a leader with an empty store.
func (l *live) anew(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ring, l.mu.instance, l.mu.next = ring.New(1000), name, 0
	l.tell()
}

func (l *live) tell() {
	for c := range l.mu.changed {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (l *live) latest() rest.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return rest.State{
		Events: l.mu.ring.View(), InstanceUUID: l.mu.instance, Version: plimsoll.Version{Epoch: 3, Revision: 1042},
	}
}

func (l *live) Events(context.Context, plimsoll.Consistency) (rest.State, error) {
	return l.latest(), nil
}

func (l *live) Follow(context.Context) (<-chan struct{}, func() rest.State, func()) {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.changed[c] = true
	return c, l.latest, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.mu.changed, c)
	}
}

// pipes listens on pipes, which buffer nothing, so that a reader that stands stops the writer.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// serve serves a handler on pipes, and returns how to open one.
func serve(t *testing.T, h http.Handler) (dial func() net.Conn) {
	t.Helper()
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(p)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return func() net.Conn {
		ours, theirs := net.Pipe()
		p.conns <- theirs
		t.Cleanup(func() { _ = ours.Close() })
		return ours
	}
}

// open asks for a stream and returns its answer, of which nothing has been read.
func open(t *testing.T, conn net.Conn, query string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+rest.StreamPath+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// line is any line of a stream.
type line struct {
	InstanceUUID string
	FirstID      uint64
	Missed       uint64
	ObjectID     string `json:"objectID"`
	StatusCode   int    `json:"status_code"`
	Message      string `json:"message"`
}

func read(t *testing.T, from *json.Decoder) line {
	t.Helper()
	var l line
	if err := from.Decode(&l); err != nil {
		t.Fatal(err)
	}
	return l
}

// Design, "Approaches to streaming": first the wanted events of before, then what comes, in order.
// YuniKorn sends none if more are wanted than there are; here these are all there are.
func TestAStreamBeginsWithAsManyPastEventsAsAreWanted(t *testing.T) {
	tests := []struct {
		name, query         string
		capacity, published int
		first, missed       uint64
	}{
		{"none are wanted", "", 100, 50, 50, 0},
		{"some", "?count=5", 100, 50, 45, 0},
		{"all", "?count=50", 100, 50, 0, 0},
		{"more than there are", "?count=51", 100, 50, 0, 0},
		{"more than the ring holds", "?count=18446744073709551615", 10, 50, 40, 0},
		{"nothing has happened", "?count=10", 10, 0, 0, 0},
		{"from an id", "?start=7", 100, 50, 7, 0},
		{"from the next one", "?start=50", 100, 50, 50, 0},
		{"from one that is gone", "?start=7", 10, 50, 40, 33},
		{"from one of the same instance", "?start=7&instance=" + instance, 100, 50, 7, 0},
		{"from one of another instance", "?start=7000&instance=other", 10, 50, 40, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				l := newLive(test.capacity, test.published)
				conn := serve(t, rest.New(rest.Config{}, l))()
				answer := open(t, conn, test.query)
				lines := json.NewDecoder(answer.Body)
				head := read(t, lines)
				if head.InstanceUUID != instance || head.FirstID != test.first || head.Missed != test.missed {
					t.Fatalf("the first line is %+v; want the first id %d, %d missed", head, test.first, test.missed)
				}
				go l.publish(10)
				for id := test.first; id < uint64(test.published)+10; id++ {
					if got := read(t, lines); got.ObjectID != strconv.FormatUint(id, 10) {
						t.Fatalf("got %+v, want the event %d", got, id)
					}
				}
			})
		})
	}
}

func TestAStreamWithABadQueryIsRefusedBeforeItBegins(t *testing.T) {
	for query, want := range map[string]string{
		"?count=-1":                   "count: \"-1\" is not a whole number",
		"?count=1&start=2":            "count: cannot be given with start",
		"?start=51":                   "start: is 51, and the next event has the id 50",
		"?instance=x":                 "instance: says of which InstanceUUID start is",
		"?format=json":                "count: is needed with format=json",
		"?format=yaml":                "format: \"yaml\" is not known; give ndjson or json",
		"?statr=3":                    "statr: is no parameter; did you mean \"start\"?",
		"?consistency=fresh":          "consistency: \"fresh\" is not known",
		"?start=18446744073709551616": "start: \"18446744073709551616\" is too large",
	} {
		w := get(rest.New(rest.Config{}, newLive(100, 50)), http.MethodGet, rest.StreamPath+query)
		if message := errorOf(t, w, http.StatusBadRequest); !strings.HasPrefix(message, want) {
			t.Errorf("%s: %q, want %q", query, message, want)
		}
	}
}

// A reader may break off anywhere, and go on from the id behind its last line. It gets each event
// once and in order, while others are published.
func TestAReaderThatResumesGetsEachEventOnce(t *testing.T) {
	seed := testrun.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	testrun.Bubble(t, func(t *testing.T) {
		l := newLive(100_000, rng.IntN(3000))
		dial := serve(t, rest.New(rest.Config{RenderedBytes: 1 + rng.IntN(100_000)}, l))
		ctx, cancel := context.WithCancel(t.Context())
		published := make(chan struct{})
		go func() {
			defer close(published)
			for rng := rand.New(rand.NewPCG(seed, 2)); ctx.Err() == nil && l.latest().Next() < 20_000; {
				l.publish(rng.IntN(400))
				time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
			}
		}()
		defer func() { cancel(); <-published }()
		for next := uint64(0); next < 15_000; {
			conn := dial()
			var coding []string
			if rng.IntN(2) == 0 {
				coding = []string{"Accept-Encoding", "zstd"}
			}
			answer := open(t, conn, fmt.Sprint("?start=", next), coding...)
			body, err := decoded(answer)
			if err != nil {
				t.Fatal(err)
			}
			lines := json.NewDecoder(body)
			if head := read(t, lines); head.FirstID != next || head.Missed > 0 {
				t.Fatalf("the first line is %+v; want the first id %d", head, next)
			}
			for range rng.IntN(2000) {
				if got := read(t, lines); got.ObjectID != strconv.FormatUint(next, 10) {
					t.Fatalf("got %+v, want the event %d", got, next)
				}
				next++
			}
			_ = conn.Close()
		}
	})
}

// decoded returns the body of an answer without its content coding.
func decoded(answer *http.Response) (io.Reader, error) {
	switch answer.Header.Get("Content-Encoding") {
	case "zstd":
		return zstd.NewReader(answer.Body, zstd.WithDecoderConcurrency(1))
	case "gzip":
		return gzip.NewReader(answer.Body)
	}
	return answer.Body, nil
}

func TestAStreamIsCompressedAsItsReaderAccepts(t *testing.T) {
	for accept, want := range map[string]string{
		"": "", "br": "", "gzip": "gzip", "zstd": "zstd", "gzip, deflate, br, zstd": "zstd",
		"zstd;q=0, gzip;q=0.5": "gzip",
	} {
		testrun.Bubble(t, func(t *testing.T) {
			l := newLive(5000, 1000)
			answer := open(t, serve(t, rest.New(rest.Config{}, l))(), "?count=1000", "Accept-Encoding", accept)
			if got := answer.Header.Get("Content-Encoding"); got != want {
				t.Fatalf("%q: the coding is %q, want %q", accept, got, want)
			}
			body, err := decoded(answer)
			if err != nil {
				t.Fatal(err)
			}
			go l.publish(1000)
			lines := json.NewDecoder(body)
			read(t, lines)
			for id := range 1500 {
				if got := read(t, lines); got.ObjectID != strconv.Itoa(id) {
					t.Fatalf("%q: got %+v, want the event %d", accept, got, id)
				}
			}
		})
	}
}

// Design, "Handling slow and rogue clients during streaming". A reader that stands is cut, and so
// is one that reads a byte a second. Nobody else waits for them.
func TestWhoDoesNotReadInTimeIsCut(t *testing.T) {
	for name, pace := range map[string]time.Duration{"never reads": time.Hour, "a byte a second": time.Second} {
		t.Run(name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				l := newLive(100_000, 50_000)
				var cuts []rest.Cut
				var mu sync.Mutex
				left := make(chan struct{})
				dial := serve(t, rest.New(rest.Config{
					EnterStream: func(*http.Request) (func(), error) { return func() { close(left) }, nil },
					StreamCut: func(why rest.Cut) {
						mu.Lock()
						defer mu.Unlock()
						cuts = append(cuts, why)
					},
				}, l))
				conn := dial()
				answer := open(t, conn, "?count=50000")
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for one := make([]byte, 1); ctx.Err() == nil; {
						if _, err := answer.Body.Read(one); err != nil {
							return
						}
						select {
						case <-time.After(pace):
						case <-ctx.Done():
						}
					}
				}()
				began := time.Now()
				<-left
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("the stream was cut after %v", took)
				}
				mu.Lock()
				defer mu.Unlock()
				if len(cuts) != 1 || cuts[0] != rest.CutSlow {
					t.Errorf("the cuts are %v, want one for being slow", cuts)
				}
				cancel()
				<-ended
			})
		})
	}
}

// A reader that is in time, but slower than what comes, is told which events it has missed.
func TestWhoFallsBehindIsToldWhatItHasMissed(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLive(1000, 1000)
		conn := serve(t, rest.New(rest.Config{}, l))()
		answer := open(t, conn, "?count=1000")
		lines := json.NewDecoder(answer.Body)
		read(t, lines)
		read(t, lines)
		l.publish(5000)
		next := 1
		for {
			got := read(t, lines)
			if got.StatusCode == 0 {
				if got.ObjectID != strconv.Itoa(next) {
					t.Fatalf("got %+v, want the event %d", got, next)
				}
				next++
				continue
			}
			want := fmt.Sprintf("the events from %d to 4999 are no longer kept, and this stream has not sent them; "+
				"go on with start=5000", next)
			if got.StatusCode != http.StatusGone || got.Message != want {
				t.Errorf("the last line is %+v, want %q", got, want)
			}
			break
		}
		if err := lines.Decode(&line{}); err != io.EOF {
			t.Errorf("behind the last line: %v", err)
		}
	})
}

func TestAStreamEndsWhenIdsBeginAnew(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLive(1000, 10)
		lines := json.NewDecoder(open(t, serve(t, rest.New(rest.Config{}, l))(), "?count=10").Body)
		for range 11 {
			read(t, lines)
		}
		l.anew("another")
		got := read(t, lines)
		if got.StatusCode != http.StatusGone || !strings.Contains(got.Message, "another InstanceUUID") {
			t.Errorf("the last line is %+v", got)
		}
	})
}

// All streams of a gateway share the lines: each event is rendered once.
func TestEachEventIsRenderedOnceForAllStreams(t *testing.T) {
	counted := &counting{live: newLive(10_000, 5000)}
	h := rest.New(rest.Config{}, counted)
	for range 5 {
		get(h, http.MethodGet, batch)
		get(h, http.MethodGet, batch+"?start=1234")
	}
	if counted.rendered != 5000 {
		t.Errorf("%d events were rendered, want 5000", counted.rendered)
	}
}

// counting counts the events that are taken out of the ring.
type counting struct {
	*live
	rendered int
}

func (c *counting) Events(context.Context, plimsoll.Consistency) (rest.State, error) {
	state := c.latest()
	state.Events = countedEvents{state.Events, c}
	return state, nil
}

type countedEvents struct {
	rest.Events
	c *counting
}

func (e countedEvents) Batch(start, count uint64, yield func(uint64, *plimsoll.Event) bool) error {
	return e.Events.Batch(start, count, func(id uint64, ev *plimsoll.Event) bool {
		e.c.rendered++
		return yield(id, ev)
	})
}

// Design, "Streaming": the example has an array of records with these names.
func TestTheDesignsFormIsAnArray(t *testing.T) {
	h := rest.New(rest.Config{}, &history{low: 7, records: nodeAdded()[2:3]})
	w := get(h, http.MethodGet, rest.StreamPath+"?format=json&count=10")
	want := `[{"type":3,"changeType":1,"changeDetail":302,"timestamp":1795188772938398870,"objectID":"n1",` +
		`"message":"schedulable: true"}]` + "\n"
	if w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
	}
	none := get(rest.New(rest.Config{}, &history{}), http.MethodGet, rest.StreamPath+"?format=json&count=1")
	if none.Body.String() != "[]\n" {
		t.Errorf("without events: %s", none.Body)
	}
}

func TestAStreamWithoutAPlaceIsRefused(t *testing.T) {
	h := rest.New(rest.Config{EnterStream: func(*http.Request) (func(), error) {
		return nil, plimsoll.Errorf(plimsoll.CodeExhausted, "there are 100 streams, as many as there may be")
	}}, newLive(10, 10))
	w := get(h, http.MethodGet, rest.StreamPath)
	if message := errorOf(t, w, http.StatusTooManyRequests); !strings.Contains(message, "100 streams") ||
		w.Header().Get("Retry-After") == "" {
		t.Errorf("got %q, Retry-After %q", message, w.Header().Get("Retry-After"))
	}
}

// A batch reads the same lines, for any start and count, and with any bound on the lines that are
// kept.
func TestBatchesEqualWhatTheRingHolds(t *testing.T) {
	seed := testrun.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	for range testrun.Count(3, 10, 200) {
		l := newLive(1+rng.IntN(3000), rng.IntN(5000))
		h := rest.New(rest.Config{RenderedBytes: 1 + rng.IntN(300_000)}, l)
		for range 60 {
			if rng.IntN(3) == 0 {
				l.publish(rng.IntN(1500))
			}
			state := l.latest()
			low, high, some := state.Range()
			if !some {
				continue
			}
			start, count := low+rng.Uint64N(high-low+1), 1+rng.Uint64N(3000)
			w := get(h, http.MethodGet, fmt.Sprintf("%s?start=%d&count=%d", batch, start, count))
			var body struct{ EventRecords []line }
			if err := json.NewDecoder(bytes.NewReader(w.Body.Bytes())).Decode(&body); err != nil {
				t.Fatal(err)
			}
			if want := min(count, high-start+1); uint64(len(body.EventRecords)) != want {
				t.Fatalf("start=%d&count=%d of %d to %d: %d events", start, count, low, high, len(body.EventRecords))
			}
			for i, got := range body.EventRecords {
				if got.ObjectID != strconv.FormatUint(start+uint64(i), 10) {
					t.Fatalf("start=%d&count=%d: the event %d is %+v", start, count, start+uint64(i), got)
				}
			}
		}
	}
}
