// Package etcdtest starts real etcd processes for tests, and makes faults in them.
//
//	cluster := etcdtest.Start(t, 3)
//	endpoints := cluster.Endpoints()
//	cluster.Members[0].Kill()    // as kill -9
//	cluster.Members[0].Start()   // with its data
//	cluster.Members[1].Pause()   // as SIGSTOP
//	cluster.Members[1].Resume()
//	cluster.Members[2].StallDisk() // of StartOnDisks: nothing becomes durable
//	cluster.Members[2].FreeDisk()
//
// The program is built by the go command from the module that go.etcd.mod pins, and kept in the
// cache of builds. The first build takes a minute on two cores. The processes end with the test,
// and also if the process of the test is killed. Nothing is left behind: the data is in a temporary
// directory.
//
// The package owns the processes. It does NOT make faults of the network: package faultnet does.
// Its callers are tests.
package etcdtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	startTimeout    = 30 * time.Second // bounds the time until a member answers
	electionTimeout = 5 * time.Minute  // bounds the time until a member leads; it takes seconds
)

// Cluster is some members.
type Cluster struct {
	Members []*Member
	Files   *Files // of StartTLS; nil otherwise
}

// Member is one process of etcd, or is ended.
type Member struct {
	Endpoint string // its address for clients
	t        testing.TB
	args     []string
	dir      string // of its data
	log      string
	tls      *tls.Config // of its clients; nil: without TLS
	cmd      *exec.Cmd   // nil: it does not run
	disk     *disk       // nil: it cannot be stalled
}

// module finds the directory with go.etcd.mod.
func module() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.etcd.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no directory above has go.etcd.mod")
		}
		dir = parent
	}
}

// program builds etcd, if it is not in the cache, and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := module()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "tool", "-modfile=go.etcd.mod", "-n", "go.etcd.io/etcd/server/v3")
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build etcd: %w: %s", err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// Program returns the path of etcd's program.
func Program(t testing.TB) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Start starts a cluster, and ends it with the test. Further flags of etcd may be given.
func Start(t testing.TB, members int, flags ...string) *Cluster {
	t.Helper()
	return startAll(t, members, setup{disk: noDisk, flags: flags})
}

func noDisk() *disk { return nil }

// setup is how the members of a cluster are started.
type setup struct {
	disk  func() *disk
	flags []string
	files *Files // nil: without TLS
}

// StartOnDisks starts a cluster whose disks can be stalled. Each fsync takes some 20 µs longer.
func StartOnDisks(t testing.TB, members int, flags ...string) *Cluster {
	t.Helper()
	return startAll(t, members, setup{disk: newDisk, flags: flags})
}

func startAll(t testing.TB, members int, with setup) *Cluster {
	t.Helper()
	c := &Cluster{Files: with.files}
	scheme, tlsConfig := "http", (*tls.Config)(nil)
	if with.files != nil {
		scheme, tlsConfig = "https", with.files.config(t)
	}
	ports := freePorts(t, 2*members)
	var peers []string
	for i := range members {
		peers = append(peers, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[2*i+1]))
	}
	for i := range members {
		dir := t.TempDir()
		client := fmt.Sprintf("%s://127.0.0.1:%d", scheme, ports[2*i])
		peer := fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1])
		m := &Member{
			Endpoint: client, t: t, tls: tlsConfig, disk: with.disk(),
			dir: filepath.Join(dir, "data"), log: filepath.Join(dir, "log"),
		}
		m.args = append([]string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", m.dir,
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(peers, ","), "--log-level", "warn",
		}, with.flags...)
		c.Members = append(c.Members, m)
		m.Start()
	}
	t.Cleanup(func() {
		for _, m := range c.Members {
			m.Kill()
		}
	})
	for _, m := range c.Members {
		m.Await()
	}
	return c
}

// freePorts returns ports of the loopback address that nothing listens at.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // until all are found
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// Endpoints returns the addresses of all members for clients.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Endpoint)
	}
	return all
}

// Client returns a client of all members, which ends with the test.
func (c *Cluster) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return c.ClientOf(t, "", "")
}

// ClientOf is Client for a user of etcd.
func (c *Cluster) ClientOf(t testing.TB, user, password string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints(), TLS: c.Members[0].tls, Username: user, Password: password,
		DialTimeout: startTimeout, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close the client of etcd: %v", err)
		}
	})
	return client
}

// Leader returns the member that leads etcd. It waits for one while the members elect it.
func (c *Cluster) Leader(t testing.TB) *Member {
	t.Helper()
	client := c.Client(t)
	for until := time.Now().Add(electionTimeout); time.Now().Before(until); <-time.After(50 * time.Millisecond) {
		for _, m := range c.Members {
			if m.cmd == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
			status, err := client.Status(ctx, m.Endpoint)
			cancel()
			if err == nil && status.Leader == status.Header.MemberId {
				return m
			}
		}
	}
	t.Fatalf("no member of etcd leads:\n%s", c.Status(t.Context()))
	return nil
}

// Status tells the state of each member in a line, for a test that waits for long.
func (c *Cluster) Status(ctx context.Context) string {
	var all strings.Builder
	for _, m := range c.Members {
		fmt.Fprintf(&all, "etcd at %s: %s\n", m.Endpoint, m.status(ctx))
	}
	return all.String()
}

// client returns a client of this member alone.
func (m *Member) client() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{m.Endpoint}, TLS: m.tls, Logger: zap.NewNop()})
}

func (m *Member) status(ctx context.Context) string {
	if m.cmd == nil {
		return "does not run"
	}
	client, err := m.client()
	if err != nil {
		return err.Error()
	}
	defer client.Close() //nolint:errcheck // nothing depends on it
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := client.Status(ctx, m.Endpoint)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("leads: %v, of term %d, index %d, errors %q",
		s.Leader == s.Header.MemberId, s.RaftTerm, s.RaftIndex, s.Errors)
}

// Start starts the process with the data that it has. It does not wait until it answers.
func (m *Member) Start() {
	m.t.Helper()
	path, err := program()
	if err != nil {
		m.t.Fatal(err)
	}
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the process has its own
	cmd := exec.Command(path, m.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begin := cmd.Start
	if m.disk != nil {
		begin = func() error { return m.disk.start(cmd) }
	}
	if err := begin(); err != nil {
		m.t.Fatal(err)
	}
	m.cmd = cmd
}

// Await returns when the member answers as one of a majority.
func (m *Member) Await() {
	m.t.Helper()
	client, err := m.client()
	if err != nil {
		m.t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // nothing depends on it
	ctx, cancel := context.WithTimeout(m.t.Context(), startTimeout)
	defer cancel()
	for {
		call, cancel := context.WithTimeout(ctx, time.Second)
		_, err := client.Get(call, "ready")
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrUserEmpty) { // it has users, and asked the majority before
			return
		}
		if ctx.Err() != nil {
			said, _ := os.ReadFile(m.log) // only to tell more
			m.t.Fatalf("etcd at %s does not answer: %v\n%s", m.Endpoint, err, said)
		}
	}
}

// Kill ends the process at once. It may have ended before.
func (m *Member) Kill() {
	m.t.Helper()
	if m.cmd == nil {
		return
	}
	m.signal(syscall.SIGKILL)
	_ = m.cmd.Wait() // it was killed
	m.cmd = nil
	if m.disk != nil {
		m.disk.end()
	}
}

// StallDisk lets nothing more become durable at the member, until FreeDisk. It returns an error if
// the kernel does not let tests do that; then nothing has changed.
func (m *Member) StallDisk() error {
	if m.disk.refused == nil {
		m.disk.stall()
	}
	return m.disk.refused
}

// FreeDisk lets the disk go on.
func (m *Member) FreeDisk() { m.disk.release() }

// Pause stops the process where it is.
func (m *Member) Pause() {
	m.t.Helper()
	m.signal(syscall.SIGSTOP)
}

// Resume lets a paused process go on.
func (m *Member) Resume() {
	m.t.Helper()
	m.signal(syscall.SIGCONT)
}

func (m *Member) signal(s syscall.Signal) {
	m.t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		m.t.Fatalf("send %v to etcd: %v", s, err)
	}
}
