package etcd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
)

// Each field that is wrong is named.
func TestConfigNamesTheWrongField(t *testing.T) {
	good := Config{Endpoints: []string{"https://a:2379", "https://b:2379"}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Config){
		"etcd.endpoints":    func(c *Config) { c.Endpoints = nil },
		"etcd.endpoints[0]": func(c *Config) { c.Endpoints = []string{"a:2379"} },
		"etcd.endpoints[1]": func(c *Config) { c.Endpoints = []string{"https://a:2379", "http://b:2379"} },
		"etcd.prefix":       func(c *Config) { c.Prefix = "plimsoll" },
		"etcd.certFile":     func(c *Config) { c.CertFile = "cert.pem" },
		"etcd.username":     func(c *Config) { c.Username = "u" },
		"etcd.ttl":          func(c *Config) { c.TTL = time.Second },
		"etcd.retention":    func(c *Config) { c.Retention = time.Second },
	} {
		c := good
		change(&c)
		var e *plimsoll.Error
		if err := c.Validate(); !errors.As(err, &e) || e.Code != plimsoll.CodeInvalid || e.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	for name, c := range map[string]Config{
		"a password in the clear": {Endpoints: []string{"http://a:1"}, Username: "u", Password: "p"},
		"certificates for http":   {Endpoints: []string{"http://a:1"}, CAFile: "ca.pem"},
		"half of a second":        {Endpoints: []string{"http://a:1"}, TTL: 2500 * time.Millisecond},
	} {
		codeIs(t, name, c.Validate(), plimsoll.CodeInvalid)
	}
}

// Files that cannot be used are named before anything is dialled.
func TestFilesOfTLSAreRead(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for field, c := range map[string]Config{
		"etcd.caFile":   {CAFile: empty},
		"etcd.certFile": {CertFile: empty, KeyFile: empty},
	} {
		c.Endpoints = []string{"https://127.0.0.1:1"}
		var e *plimsoll.Error
		if _, err := Open(context.Background(), c); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

// An etcd that nobody reaches is unavailable, and the error says which.
func TestAnUnreachableEtcdIsTold(t *testing.T) {
	_, err := Open(context.Background(), Config{Endpoints: []string{"http://" + freeAddress(t)}})
	codeIs(t, "open", err, plimsoll.CodeUnavailable)
}

// Versions of etcd with which two processes can lead are refused.
func TestUnsafeVersionsAreRefused(t *testing.T) {
	for version, safe := range map[string]bool{
		"3.3.27": false, "3.4.37": false, "3.4.38": true, "3.5.0": false, "3.5.22": false, "3.5.23": true,
		"3.6.4": false, "3.6.5": true, "3.6.14": true, "3.7.0": true, "3.8.0-alpha.0": true, "4.0.0": true,
		"2.3.8": false, "": false, "Not set": false,
	} {
		err := checkVersion("http://a:1", version)
		if safe && err != nil || !safe && plimsoll.CodeOf(err) != plimsoll.CodeConflict {
			t.Errorf("%s: got %v", version, err)
		}
	}
}

// Those who look for the leader are told the present one, or that there is none.
func TestTheLeaderIsFound(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg := config(cluster)
	leaders, err := FindLeaders(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	found := func() Leader {
		t.Helper()
		l, err := leaders.Leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := found(); l != (Leader{}) {
		t.Errorf("at first: %v", l)
	}
	var last Leader
	for _, address := range []string{"http://a:1", "http://b:2", "http://a:1"} {
		cfg.Advertise = address
		s := openStore(t, cfg)
		leadStore(t, s)
		l := found()
		if l.Address != address || l.Term <= last.Term {
			t.Errorf("got %v after %v, want the address %s", l, last, address)
		}
		last = l
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if l := found(); l != (Leader{}) {
			t.Errorf("after the end: %v", l)
		}
	}
	if err := leaders.Close(); err != nil {
		t.Error(err)
	}
}

// A process that waits to lead is told the address of the leader, and of the next one.
func TestWhoWaitsIsToldTheLeader(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg := config(cluster)
	var stores []*Store
	for _, address := range []string{"a", "b", "c"} {
		cfg.Advertise = address
		stores = append(stores, openStore(t, cfg))
	}
	leadStore(t, stores[0])
	second := make(chan error, 1)
	waits := make(chan struct{})
	go func() {
		_, err := stores[1].Lead(context.Background(), func(string) { close(waits) })
		second <- err
	}()
	<-waits
	told := make(chan string, 10)
	third := make(chan error, 1)
	go func() {
		_, err := stores[2].Lead(context.Background(), func(leader string) { told <- leader })
		third <- err
	}()
	for i, want := range []string{"a", "b"} {
		if got := <-told; got != want {
			t.Errorf("the leader is said to be %q, want %q", got, want)
		}
		if i == 1 {
			if err := <-second; err != nil {
				t.Fatal(err)
			}
		}
		if err := stores[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-third; err != nil {
		t.Error(err)
	}
}
