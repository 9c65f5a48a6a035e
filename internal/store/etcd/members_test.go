package etcd

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
)

// proxied serves an address in front of a member. When the member is paused, it looks as one whose
// disk hangs: connections stay, pings are answered, calls and watches are not.
func proxied(t *testing.T, m *etcdtest.Member) (endpoint string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(m.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport, proxy.FlushInterval = transport, -1
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // a caller has gone
	server := &http.Server{Protocols: &protocols, ReadHeaderTimeout: time.Minute, Handler: proxy}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) }) // it ends with Close
	t.Cleanup(func() {
		_ = server.Close()
		served.Wait()
		transport.CloseIdleConnections()
	})
	return "http://" + l.Addr().String()
}

// When the disk of a member hangs, and its connections stay, a leader writes and loads. Another one
// takes over when it is gone, and a process that looks for the leader finds it. Each step ends
// within a minute; it takes seconds.
func TestAMemberWhoseDiskHangsHoldsNobodyUp(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	cfg := config(cluster)
	for i, m := range cluster.Members {
		cfg.Endpoints[i] = proxied(t, m)
	}
	cfg.Advertise = "first"
	first := openStore(t, cfg)
	epoch := leadStore(t, first)
	for r := range uint64(20) {
		mustCommit(t, first, batchOf(epoch, r+1, fmt.Sprint("n", r), "1"))
	}
	leaders, err := FindLeaders(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer leaders.Close() //nolint:errcheck // nothing depends on it
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg.Advertise = "second"
	second := openStore(t, cfg)
	waiting, led := make(chan string, 1), make(chan uint64, 1)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		for { // it tries again, as a coordinator does, while etcd has no leader
			epoch, err := second.Lead(ctx, func(leader string) {
				select {
				case waiting <- leader:
				default:
				}
			})
			if err == nil || ctx.Err() != nil {
				led <- epoch
				return
			}
			t.Log(err)
		}
	})
	if leader := <-waiting; leader != "first" {
		t.Errorf("the second waits for %q", leader)
	}
	hangs := cluster.Leader(t)
	hangs.Pause()
	t.Cleanup(hangs.Resume)
	first.term().place.lease.lose() // as if the process were gone: nobody gives the lease back
	if later := <-led; later <= epoch {
		t.Fatalf("epoch %d follows %d", later, epoch)
	}
	if got := values(t, second); len(got) != 20 {
		t.Errorf("%d records were loaded, want 20", len(got))
	}
	cfg.Advertise = "third" // it is opened while the member hangs
	third := openStore(t, cfg)
	if got := values(t, third); len(got) != 20 {
		t.Errorf("%d records were loaded at another process, want 20", len(got))
	}
	for {
		l, err := leaders.Leader(ctx)
		if err == nil && l.Address == "second" {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the leader is not found: %+v, %v", l, err)
		}
	}
}
