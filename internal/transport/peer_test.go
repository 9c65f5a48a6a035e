package transport_test

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// Over both protocols, on TCP and on a socket, a handler knows who calls.
func TestPeerOfARequest(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:0": "127.0.0.1", "unix:" + filepath.Join(t.TempDir(), "s"): "uid:" + strconv.Itoa(os.Geteuid()),
	} {
		l, err := transport.Listen(address)
		if err != nil {
			t.Fatal(err)
		}
		peers := make(chan transport.Peer, 1)
		handler := http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) { peers <- transport.PeerOf(r.Context()) },
		)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- transport.Serve(ctx, l, handler, transport.ServeConfig{Access: transport.AnyCaller()})
		}()
		if l.Addr().Network() == "tcp" {
			address = l.Addr().String()
		}
		for _, dial := range []func(string) (*http.Client, string, error){transport.Client, transport.CallClient} {
			client, url, err := dial(address)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Get(url + "/")
			if err != nil {
				t.Fatal(err)
			}
			if err := response.Body.Close(); err != nil {
				t.Error(err)
			}
			if peer := <-peers; peer.String() != want || transport.ParsePeer(want) != peer {
				t.Errorf("on %s the peer is %+v, want %s", address, peer, want)
			}
			client.CloseIdleConnections()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestParsePeer(t *testing.T) {
	for text, want := range map[string]transport.Peer{
		"": transport.NoPeer, "uid:": transport.NoPeer, "uid:-1": transport.NoPeer, "uid:x": transport.NoPeer,
		"host":  transport.NoPeer,
		"uid:0": {UID: 0}, "10.0.0.7": {IP: netip.MustParseAddr("10.0.0.7"), UID: -1},
	} {
		if got := transport.ParsePeer(text); got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	}
	if peer := transport.PeerOf(t.Context()); peer != transport.NoPeer || peer.String() != "" {
		t.Errorf("without a connection the peer is %+v", peer)
	}
}

// A fact about a connection must hold for all its requests: its client makes no other.
func TestAClientOfOneConnectionMakesNoOther(t *testing.T) {
	l, err := transport.Listen("unix:" + filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	serve := func() (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/away" {
				http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
			}
		})
		go func() {
			ended <- transport.Serve(ctx, l, handler, transport.ServeConfig{Access: transport.AnyCaller()})
		}()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	stop := serve()
	conn := dialUnix(t, l.Addr().String())
	if peer := transport.PeerOfConn(conn); peer.UID != os.Geteuid() {
		t.Errorf("the listener is of %+v", peer)
	}
	client := transport.NewConnClient(conn, "unix:"+l.Addr().String())
	defer client.Close()
	get := func(path string) error {
		response, err := client.HTTP.Get(client.URL + path)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	for range 3 {
		if err := get("/"); err != nil || !client.Alive() {
			t.Fatalf("alive %t, %v", client.Alive(), err)
		}
	}
	if err := get("/away"); err == nil {
		t.Error("it followed to another address")
	}
	path := l.Addr().String()
	stop()
	if l, err = transport.Listen("unix:" + path); err != nil {
		t.Fatal(err)
	}
	defer serve()()
	if err := get("/"); err == nil || client.Alive() {
		t.Errorf("alive %t and %v after the connection has ended", client.Alive(), err)
	}
}

func dialUnix(t *testing.T, path string) net.Conn {
	t.Helper()
	var dialer net.Dialer
	c, err := dialer.DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
