package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll/internal/store/backup"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// leaderNow returns the name of the coordinator that leads, and its epoch.
func (s *site) leaderNow() (name string, epoch uint64) {
	s.t.Helper()
	var v leaderView
	s.read(&v, "--retry-for", "30s", "leader")
	return strings.TrimSuffix(filepath.Base(v.Address), ".sock"), v.Epoch
}

// runs runs a job, and tries again for long enough that another leader takes over.
func (s *site) runs(id string) {
	s.t.Helper()
	if stdout, stderr, code := s.cli("--retry-for", "30s", "run", "--id", id, "--", "echo", "done"); code != 0 ||
		stdout != "done\n" {
		s.t.Fatalf("job %s: exit code %d, %q, %s", id, code, stdout, stderr)
	}
}

// portsInARow returns the first of n ports that were free a moment ago.
func portsInARow(t *testing.T, n int) int {
	t.Helper()
	for first := 20_000 + os.Getpid()%20_000; first < 60_000; first += n {
		free := 0
		for ; free < n; free++ {
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(first+free))
			if err != nil {
				break
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if free == n {
			return first
		}
	}
	t.Fatal("no ports in a row are free")
	return 0
}

// TestClusterUp: a cluster on one machine takes jobs, goes on when its leader is killed and when it
// steps down, and starts the killed process again. It ends with all its processes.
func TestClusterUp(t *testing.T) {
	t.Parallel()
	program := etcdtest.Program(t)
	s := newSite(t)
	first := portsInARow(t, 3)
	s.address = "127.0.0.1:" + strconv.Itoa(first)
	up := start(t, "cluster", "up", "--data", s.path("cluster"), "--etcd", program, "--port", strconv.Itoa(first))
	up.says(`plimsoll is ready at http://` + s.address)
	s.runs("before")

	name, epoch := s.leaderNow()
	pid, err := strconv.Atoi(up.says(`of 12: ` + name + `, process (\d+)`)[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.runs("behind")
	up.says(name + ` ended \(signal: killed`)
	up.says(name + ` runs again`)
	next, later := s.leaderNow()
	if next == name || later <= epoch {
		t.Errorf("%s leads with epoch %d after %s with %d", next, later, name, epoch)
	}

	if _, stderr, code := s.cli("leader", "step-down"); code != 0 {
		t.Fatalf("step-down: %d, %s", code, stderr)
	}
	if last, again := s.leaderNow(); last == next || again <= later {
		t.Errorf("%s leads with epoch %d after %s stepped down with %d", last, again, next, later)
	}
	s.runs("last")
	up.stop()
}

// contentOf returns the records and events of a backup.
func contentOf(t *testing.T, path string) (records, events []string) {
	t.Helper()
	f, err := backup.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Load(t.Context(), func(kind wire.Kind, key string, value []byte) error {
		records = append(records, strconv.Itoa(int(kind))+" "+key+" "+string(value))
		return nil
	}, func(_ uint64, chunk wire.EventChunk) error {
		events = append(events, strconv.FormatUint(chunk.FirstID, 10)+" "+string(chunk.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return records, events
}

// TestAStoreMovesToEtcdAndBack: all records and events of a store are the same on etcd, and in a
// directory again.
func TestAStoreMovesToEtcdAndBack(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t, 1).Members[0].Endpoint
	s := newSite(t)
	d := s.dev()
	s.submit("moved", 20, "true", "")
	s.ended("moved")
	d.stop()
	must := func(args ...string) {
		t.Helper()
		if _, stderr, code := run(t, append([]string{"store"}, args...)...); code != 0 {
			t.Fatalf("plimsoll store %s: %d, %s", strings.Join(args, " "), code, stderr)
		}
	}
	file := func(name string) string { return s.path(name + ".backup") }
	must("export", file("first"), "--data", filepath.Join(s.data(), "store"))
	must("import", file("first"), "--etcd", endpoint, "--move")
	must("export", file("second"), "--etcd", endpoint)
	must("import", file("second"), "--data", s.path("back"), "--move")
	must("export", file("third"), "--data", s.path("back"))
	records, events := contentOf(t, file("first"))
	if len(records) < 20 || len(events) == 0 {
		t.Fatalf("the store has %d records and %d chunks of events", len(records), len(events))
	}
	for _, name := range []string{"second", "third"} {
		r, e := contentOf(t, file(name))
		if diff := cmp.Diff(records, r); diff != "" {
			t.Errorf("%s: records -want +got:\n%s", name, diff)
		}
		if diff := cmp.Diff(events, e); diff != "" {
			t.Errorf("%s: events -want +got:\n%s", name, diff)
		}
	}
	if _, stderr, code := run(t, "store", "import", file("first"), "--etcd", endpoint); code == 0 ||
		!strings.Contains(stderr, "--force") {
		t.Errorf("an import into a store that is not empty: %d, %s", code, stderr)
	}
}

// TestTheLeaderIsFoundByEtcdAndByAList: a gateway with --etcd finds each leader. An export finds it
// in a list of addresses, and from the address of a standby.
func TestTheLeaderIsFoundByEtcdAndByAList(t *testing.T) {
	t.Parallel()
	endpoints := strings.Join(etcdtest.Start(t, 3).Endpoints(), ",")
	s := newSite(t)
	first, second := "unix:"+s.path("c1.sock"), "unix:"+s.path("c2.sock")
	begin := func(name, listen string) *daemon {
		return start(t, "coordinator", "--data", s.path(name), "--listen", listen, "--etcd", endpoints,
			"--etcd-history", "none", "--archive", "none")
	}
	leader := begin("c1", first)
	leader.says("msg=leading")
	standby := begin("c2", second)
	standby.says("standby")
	gateway := start(t, "gateway", "--data", s.path("gateway"), "--listen", s.address, "--etcd", endpoints,
		"--archive", "none")
	gateway.says("following the leader")
	s.submit("kept", 1, "true", "")
	exports := func(name, places string) {
		t.Helper()
		file := s.path(name + ".backup")
		if _, stderr, code := run(t, "store", "export", file, "--coordinator", places); code != 0 {
			t.Fatalf("an export from %s: %d, %s", places, code, stderr)
		}
		if records, _ := contentOf(t, file); !strings.Contains(strings.Join(records, "\n"), "kept") {
			t.Errorf("the export from %s has not what was submitted", places)
		}
	}
	exports("list", second+",unix:"+s.path("nobody.sock")+","+first)
	exports("standby", second)
	leader.kill()
	standby.says("msg=leading epoch=2")
	s.submit("kept-too", 1, "true", "")
	exports("later", first+","+second)
	_, stderr, code := run(t, "store", "export", s.path("no.backup"), "--coordinator", first+",unix:"+s.path("x"))
	if code == 0 || !strings.Contains(stderr, "find the coordinator that leads") {
		t.Errorf("an export without a leader: %d, %s", code, stderr)
	}
}
