package dev_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
)

// TestMain gives the tests a home directory of their own, where dev enters its tokens.
func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "home")
	if err == nil {
		err = errors.Join(os.Setenv("HOME", home), os.Unsetenv("XDG_CONFIG_HOME"), os.Unsetenv("SUDO_UID"))
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(home) // left-overs in the temporary directory do no harm
		os.Exit(code)
	}))
}

// start runs dev until the returned function is called.
func start(t *testing.T, cfg dev.Config) (d *dev.Dev, stop func() error) {
	t.Helper()
	cfg.NoAgent = true
	d, err := dev.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	if err := d.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return d, func() error {
		cancel()
		return <-ended
	}
}

func mustStop(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Errorf("dev ended with %v", err)
	}
}

func submit(t *testing.T, url, id string) {
	t.Helper()
	c, err := client.New(client.Config{Server: url})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.SubmitJob(context.Background(), plimsoll.JobSpec{
		ID: id, Owner: "alice", Queue: "root.batch",
		Groups: []plimsoll.GroupSpec{
			{Name: "work", Count: 2, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 100}},
		},
	}); err != nil {
		t.Fatal(err)
	}
}

// Acknowledged jobs are there at the next start, on TCP and on a socket.
func TestStartStopStart(t *testing.T) {
	data := t.TempDir()
	for i, listen := range []string{"127.0.0.1:0", "unix:" + filepath.Join(shortDir(t), "s"), "127.0.0.1:0"} {
		d, stop := start(t, dev.Config{Data: data, Listen: listen})
		submit(t, d.URL(), []string{"a", "b", "c"}[i])
		c, err := client.New(client.Config{Server: d.URL()})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b", "c"}[:i+1] {
			if _, err := c.Job(context.Background(), id); err != nil {
				t.Errorf("job %s at start %d: %v", id, i+1, err)
			}
		}
		c.Close()
		mustStop(t, stop)
		if _, err := os.Stat(filepath.Join(data, "coordinator.sock")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the coordinator's socket is left behind: %v", err)
		}
	}
}

// shortDir is a directory whose name is short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // left-overs in the temporary directory do no harm
	return dir
}

// The metrics of all roles are on the gateway's port.
func TestMetricsOfAllRoles(t *testing.T) {
	d, stop := start(t, dev.Config{Data: shortDir(t), Listen: "127.0.0.1:0"})
	defer mustStop(t, stop)
	submit(t, d.URL(), "a")
	response, err := http.Get(d.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	for _, name := range []string{
		"plimsoll_coordinator_turns_total", "plimsoll_gateway_requests_total", "go_goroutines",
	} {
		if !strings.Contains(string(data), "\n"+name) {
			t.Errorf("/metrics has no %s", name)
		}
	}
}

// A Dev that is run with a context that has ended closes what New opened.
func TestRunOfAnEndedContextCloses(t *testing.T) {
	data := shortDir(t)
	d, err := dev.New(dev.Config{Data: data, Listen: "127.0.0.1:0", NoAgent: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	mustBeFree(t, data, strings.TrimPrefix(d.URL(), "http://"))
}

// mustBeFree checks that New has closed everything that it opened.
func mustBeFree(t *testing.T, data, address string) {
	t.Helper()
	d, stop := start(t, dev.Config{Data: data, Listen: address})
	submit(t, d.URL(), "free")
	mustStop(t, stop)
}

func TestRefusals(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }() // it was never used
	used := shortDir(t)
	_, stop := start(t, dev.Config{Data: used, Listen: "127.0.0.1:0"})
	defer mustStop(t, stop)
	file := filepath.Join(shortDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	socket := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}()
	free := socket.Addr().String()
	if err := socket.Close(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		cfg   dev.Config
		code  plimsoll.Code
		texts []string
		fresh bool // Data is to be a directory that is not there yet
		left  bool // a data directory may be left behind
	}{
		{"no directory", dev.Config{}, plimsoll.CodeInvalid, []string{"data"}, false, false},
		{
			"port in use",
			dev.Config{Listen: busy.Addr().String()},
			plimsoll.CodeAlreadyRunning,
			[]string{busy.Addr().String(), "in use"},
			true, false,
		},
		{
			"directory in use",
			dev.Config{Data: used},
			plimsoll.CodeAlreadyRunning,
			[]string{used, "in use"},
			false,
			true,
		},
		{"directory is a file", dev.Config{Data: file}, plimsoll.CodeInvalid, []string{file, "may write"}, false, true},
		{
			"long path",
			dev.Config{Data: filepath.Join(shortDir(t), strings.Repeat("x", 90))},
			plimsoll.CodeInvalid,
			[]string{"data", "too long", "characters shorter"},
			false, false,
		},
		{
			"open address",
			dev.Config{Listen: "0.0.0.0:0"},
			plimsoll.CodeInvalid,
			[]string{"listen", "insecure"},
			true,
			false,
		},
		{"bad address", dev.Config{Listen: "nowhere"}, plimsoll.CodeInvalid, []string{"nowhere"}, true, false},
		{
			"bad gateway",
			dev.Config{Gateway: gateway.Config{PageSize: -1}},
			plimsoll.CodeInvalid,
			[]string{"pageSize"},
			true, false,
		},
		{
			"bad coordinator",
			dev.Config{Coordinator: coordinator.Config{MaxInbox: -1}},
			plimsoll.CodeInvalid,
			[]string{"maxInbox"},
			true, false,
		},
		{
			"bad queues",
			dev.Config{Queues: &plimsoll.QueueConfig{Name: "x"}},
			plimsoll.CodeInvalid,
			[]string{"root"},
			true, false,
		},
		{
			"bad store",
			dev.Config{Store: pebble.Config{CacheBytes: -1}},
			plimsoll.CodeInvalid,
			[]string{"cacheBytes"},
			true, true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.fresh {
				test.cfg.Data = filepath.Join(shortDir(t), "data")
			}
			if test.cfg.Listen == "" {
				test.cfg.Listen = free
			}
			test.cfg.NoAgent = true
			_, err := dev.New(test.cfg)
			if plimsoll.CodeOf(err) != test.code {
				t.Fatalf("error %v, want code %s", err, test.code)
			}
			for _, text := range test.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			if _, err := os.Stat(test.cfg.Data); test.cfg.Data != "" && !test.left && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s was left behind", test.cfg.Data)
			}
			mustBeFree(t, shortDir(t), free)
		})
	}
	t.Run("bad agent", func(t *testing.T) { // found after the store was opened
		data := shortDir(t)
		if _, err := dev.New(
			dev.Config{Data: data, Listen: free, Node: "not an id"},
		); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Fatalf("error %v", err)
		}
		mustBeFree(t, data, free)
	})
}
