package main

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
)

// The finder stays connected: it finds each leader, also while a member of etcd does not run.
func TestEtcdFindsTheLeader(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 3)
	config := etcd.Config{Endpoints: cluster.Endpoints()}
	finder := &etcdFinder{config: config}
	if err := finder.Close(); err != nil {
		t.Errorf("close before it was connected: %v", err)
	}
	if found, err := finder.Find(t.Context()); !errors.Is(err, errNobodyLeads) {
		t.Errorf("while nobody leads: %v, %v", found, err)
	}
	leads := func(address string) (end func()) {
		t.Helper()
		config.Advertise = address
		s, err := etcd.Open(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Lead(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	connected := finder.leaders
	finds := func(want string) {
		t.Helper()
		found, err := finder.Find(t.Context())
		if err != nil || !slices.Equal(found, []string{want}) {
			t.Errorf("got %v, %v, want %s", found, err, want)
		}
	}
	end := leads("10.0.0.1:9081")
	finds("10.0.0.1:9081")
	end()
	end = leads("10.0.0.2:9081")
	finds("10.0.0.2:9081")
	cluster.Members[0].Kill()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); { // etcd may elect a leader of its own
		if _, err := finder.Find(t.Context()); err == nil {
			break
		}
	}
	finds("10.0.0.2:9081")
	if finder.leaders != connected {
		t.Error("it has connected anew")
	}
	if err := finder.Close(); err != nil {
		t.Error(err)
	}
	finds("10.0.0.2:9081") // it connects again
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := finder.Find(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v, %v", found, err)
	}
	if err := finder.Close(); err != nil {
		t.Error(err)
	}
	end()
}

// --etcd-history is the retention of the store. A wrong value is refused with the name of the flag.
func TestTheHistoryOfEtcdIsAFlag(t *testing.T) {
	t.Parallel()
	f := leadershipFlags{etcdFlags: etcdFlags{Etcd: []string{"http://127.0.0.1:2379"}}, Lease: etcd.DefaultTTL}
	for text, want := range map[string]time.Duration{"": 5 * time.Minute, "1m": time.Minute, "2d": 48 * time.Hour} {
		f.EtcdHistory = text
		if c, err := f.storeConfig("127.0.0.1:9081", nil); err != nil || c.Retention != want {
			t.Errorf("%q: got %v, %v, want %v", text, c.Retention, err, want)
		}
	}
	f.EtcdHistory = "none"
	if c, err := f.storeConfig("127.0.0.1:9081", nil); err != nil || c.Retention >= 0 {
		t.Errorf("none: got %v, %v", c.Retention, err)
	}
	for _, text := range []string{"59s", "0", "-1h", "5", "never"} {
		f.EtcdHistory = text
		var e *plimsoll.Error
		if _, err := f.storeConfig("127.0.0.1:9081", nil); !errors.As(err, &e) || e.Field != "--etcd-history" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A coordinator listens where a gateway and a backup look for it.
func TestTheCoordinatorHasOneDefaultAddress(t *testing.T) {
	t.Parallel()
	tag := func(command any, field string) reflect.StructTag {
		f, _ := reflect.TypeOf(command).FieldByName(field)
		return f.Tag
	}
	for of, address := range map[string]string{
		"coordinator --listen":       tag(coordinatorCmd{}, "Listen").Get("default"),
		"store export --coordinator": tag(storeExportCmd{}, "Coordinator").Get("default"),
	} {
		if address != defaultLeader {
			t.Errorf("the default of %s is %s, and a gateway takes %s", of, address, defaultLeader)
		}
	}
	if help := tag(gatewayCmd{}, "Leader").Get("help"); !strings.HasSuffix(help, "Default: "+defaultLeader+".") {
		t.Errorf("the help of gateway --leader is %q", help)
	}
}
