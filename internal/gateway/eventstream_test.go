package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// streamEvents opens a stream of events and returns its status and a decoder of its lines.
func streamEvents(t *testing.T, s *served, query string) (status int, lines *json.Decoder, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+rest.StreamPath+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	end = func() {
		cancel()
		_ = answer.Body.Close() // it was cut off
	}
	t.Cleanup(end)
	return answer.StatusCode, json.NewDecoder(answer.Body), end
}

// streamLine is a line of a stream: the first, or an event.
type streamLine struct {
	InstanceUUID string
	FirstID      uint64
	ObjectID     string `json:"objectID"`
}

func nextLine(t *testing.T, from *json.Decoder) (l streamLine) {
	t.Helper()
	if err := from.Decode(&l); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestEventsAreStreamedAsTheyCome(t *testing.T) {
	f := cluster()
	for _, name := range []string{"first", "second"} {
		f.emit(plimsoll.Event{Type: plimsoll.EventApp, Object: name})
	}
	s := serve(t, Config{}, f)
	status, lines, _ := streamEvents(t, s, "?count=1")
	head := nextLine(t, lines)
	if status != http.StatusOK || head.InstanceUUID != f.Latest().InstanceUUID() || head.FirstID != 1 {
		t.Fatalf("status %d, first line %+v", status, head)
	}
	if got := nextLine(t, lines); got.ObjectID != "second" {
		t.Errorf("the event of before is %+v", got)
	}
	for _, name := range []string{"third", "fourth"} {
		f.emit(plimsoll.Event{Type: plimsoll.EventApp, Object: name})
		if got := nextLine(t, lines); got.ObjectID != name {
			t.Errorf("got %+v, want %s", got, name)
		}
	}
}

// A stream does not begin with a copy that may be stale.
func TestAStreamOfEventsNeedsALeader(t *testing.T) {
	f := cluster()
	f.set(func(f *fake) { f.down = errNoLeader })
	status, body := serve(t, Config{}, f).do(t, http.MethodGet, rest.StreamPath, "", nil)
	if status != http.StatusServiceUnavailable {
		t.Errorf("status %d %s", status, body)
	}
}

func TestStreamsOfEventsAreBounded(t *testing.T) {
	s := serve(t, Config{MaxEventStreams: 2}, cluster())
	_, lines, end := streamEvents(t, s, "")
	nextLine(t, lines)
	_, lines, _ = streamEvents(t, s, "")
	nextLine(t, lines)
	status, body := s.do(t, http.MethodGet, rest.StreamPath, "", nil)
	if status != http.StatusTooManyRequests || !strings.Contains(body, "2 streams of events, as many as it may") {
		t.Errorf("the third: %d %s", status, body)
	}
	if status, _ := s.do(t, http.MethodGet, "/ws/v1/events/batch", "", nil); status != http.StatusOK {
		t.Errorf("a batch beside full streams: %d", status)
	}
	end()
	for ctx, cancel := context.WithTimeout(t.Context(), time.Minute); ; {
		defer cancel()
		status, lines, end := streamEvents(t, s, "")
		if status == http.StatusOK {
			nextLine(t, lines)
			return
		}
		if end(); ctx.Err() != nil {
			t.Fatalf("a place was not given back: %d", status)
		}
	}
}

// The bound on one address counts where a request comes from. The Host header, which YuniKorn
// counts, is the caller's own word.
func TestAnAddressHasABoundOfItsOwn(t *testing.T) {
	streams := eventStreams{most: 4, mostOfPeer: 2}
	one, other, local := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.Addr{}
	var leave []func()
	for i, step := range []struct {
		peer  netip.Addr
		bound string
	}{
		{one, ""},
		{one, ""},
		{one, boundPeerEventStreams},
		{other, ""},
		{local, ""},
		{local, boundEventStreams},
		{other, boundEventStreams},
	} {
		left, bound, err := streams.enter(step.peer)
		if bound != step.bound || (err == nil) != (step.bound == "") {
			t.Errorf("step %d: bound %q, %v; want %q", i, bound, err, step.bound)
		}
		if err == nil {
			leave = append(leave, left)
		}
	}
	for _, left := range leave {
		left()
	}
	if streams.mu.open != 0 || len(streams.mu.peers) != 0 {
		t.Errorf("after all have left: %d, %v", streams.mu.open, streams.mu.peers)
	}
}

// Design, "Handling slow and rogue clients during streaming". Readers that want all history and do
// not read are cut, and nothing of them is left. One that reads is not disturbed.
func TestReadersThatDoNotReadLeaveNothing(t *testing.T) {
	f := cluster()
	long := strings.Repeat("x", 1000)
	for i := range 400 {
		events := make([]plimsoll.Event, 50)
		for j := range events {
			events[j] = plimsoll.Event{Type: plimsoll.EventApp, Object: fmt.Sprint(i*50 + j), Message: long}
		}
		f.emit(events...)
	}
	rounds, each := 2, 100
	if testrun.Soak() {
		rounds = 10
	}
	s := serve(t, Config{MaxEventStreams: each + 1}, f)
	_, lines, _ := streamEvents(t, s, "")
	nextLine(t, lines)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for round := range rounds {
		conns := make([]net.Conn, each)
		for i := range conns {
			conns[i] = neverReads(t, s.address)
		}
		f.emit(plimsoll.Event{Type: plimsoll.EventApp, Object: fmt.Sprint("round ", round)})
		if got := nextLine(t, lines); got.ObjectID != fmt.Sprint("round ", round) {
			t.Fatalf("the reader got %+v in round %d", got, round)
		}
		wanted := float64(each * (round + 1))
		for metricOf(t, s.gateway, "plimsoll_gateway_watches_cut_total", cutSlow) < wanted {
			if pause(ctx, 20*time.Millisecond) != nil {
				t.Fatalf("readers that do not read are kept in round %d", round)
			}
		}
		for _, c := range conns {
			_ = c.Close() // the gateway has closed it
		}
	}
	for runtime.NumGoroutine() > before+2 { // the reader's connection may have some
		if ctx.Err() != nil {
			t.Fatalf("%d goroutines are left of %d readers", runtime.NumGoroutine()-before, rounds*each)
		}
		runtime.Gosched()
	}
}

// A thousand clients at once, of three kinds: some never read, some read a byte a second, and some
// ask for all history again and again. No goroutine is left of them. The bubble fails if one is
// left of the gateway, too.
func TestNoGoroutineIsLeftOfAThousandSlowClients(t *testing.T) {
	f := cluster()
	for i := range 20 {
		events := make([]plimsoll.Event, 10)
		for j := range events {
			events[j] = plimsoll.Event{
				Type: plimsoll.EventApp, Object: fmt.Sprint(i*10 + j), Message: strings.Repeat("x", 1000),
			}
		}
		f.emit(events...)
	}
	const clients = 1000
	inBubble(t, Config{MaxEventStreams: clients}, f, func(t *testing.T, network *faultnet.Pipes, client *http.Client) {
		if got := status(t, client, "/healthz"); got != http.StatusOK {
			t.Fatal(got)
		}
		client.CloseIdleConnections()
		synctest.Wait()
		before := ofBubble()
		var slow sync.WaitGroup
		for i := range clients {
			slow.Go(func() { slowClient(t, network, i%3) })
		}
		time.Sleep(time.Second)
		open := 0
		f.set(func(f *fake) { open = len(f.watches[watchKey{replica.KindEvents, ""}]) })
		if open < clients/2 {
			t.Errorf("only %d streams were open", open)
		}
		slow.Wait()
		time.Sleep(time.Minute) // of the bubble
		synctest.Wait()
		if left := ofBubble() - before; left > 0 {
			t.Errorf("%d goroutines are left", left)
		}
	})
}

// ofBubble returns the number of goroutines of the bubble of this test. The runtime has others,
// which come and go.
func ofBubble() int {
	stacks := make([]byte, 4<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ", synctest bubble ")
}

// slowClient is a client of one of the three kinds. It asks for all history over three connections,
// one after the other.
func slowClient(t *testing.T, network *faultnet.Pipes, kind int) {
	for range 3 {
		c, err := network.Dial(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(c, "GET "+rest.StreamPath+"?count=20000 HTTP/1.1\r\nHost: gateway\r\n\r\n")
		switch kind {
		case 0: // it never reads
			time.Sleep(2 * time.Minute)
		case 1: // a byte a second
			for one := make([]byte, 1); err == nil; {
				time.Sleep(time.Second)
				_, err = c.Read(one)
			}
		default:
			_, _ = io.CopyN(io.Discard, c, 150<<10)
		}
		_ = c.Close() // the gateway may have closed it
	}
}

// neverReads asks for all history, over a connection with small buffers.
func neverReads(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096) // a larger one only takes longer to fill
	}
	_, err = io.WriteString(c, "GET "+rest.StreamPath+"?count=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
