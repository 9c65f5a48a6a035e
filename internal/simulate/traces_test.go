package simulate_test

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// openTrace opens a file of the traces. Without the traces the test is skipped.
func openTrace(t testing.TB, name string) *os.File {
	t.Helper()
	dir := cmp.Or(os.Getenv("PLIMSOLL_TRACES"), filepath.Join("..", "..", "..", "shared", "traces"))
	file, err := os.Open(filepath.Join(dir, name))
	if os.IsNotExist(err) {
		t.Skipf("the traces are not at %s; say where with PLIMSOLL_TRACES", dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return file
}

// readPods reads the pods of a trace, and keeps the first ones in a short run.
func readPods(t testing.TB, name string, want int) *simulate.Workload {
	t.Helper()
	w, err := simulate.ReadPods(name, openTrace(t, name))
	if err != nil || len(w.Arrivals) != want {
		t.Fatalf("%d pods, error %v; want %d", len(w.Arrivals), err, want)
	}
	if testrun.Quick() {
		w.Arrivals = w.Arrivals[:2000]
	}
	return w
}

// TestOpenBIsPacked packs the openb trace. Its pods ask for 98 % of the GPUs, so a few of the last
// ones wait.
func TestOpenBIsPacked(t *testing.T) {
	w := readPods(t, "openb/openb_pod_list_default.csv", 8152)
	nodes, err := simulate.ReadOpenBNodes("nodes", openTrace(t, "openb/openb_node_list_all_node.csv"))
	if err != nil || len(nodes) != 1523 {
		t.Fatalf("%d nodes, error %v; want 1523", len(nodes), err)
	}
	w.Nodes = nodes
	w.Pack()
	report := run(t, w)
	if left := len(w.Arrivals) - report.Placed; report.Waiting != left || left > 80 || report.Refused > 0 {
		t.Errorf("of %d pods %d were placed, %d wait, %d were refused; want at most 80 that wait",
			len(w.Arrivals), report.Placed, report.Waiting, report.Refused)
	}
}

// TestDLRMIsPlayed plays the DLRM trace on a fleet with room for all of it.
func TestDLRMIsPlayed(t *testing.T) {
	w := readPods(t, "dlrm2025.csv", 23871)
	gib := int64(1) << 30
	w.AddNodes(600, plimsoll.Resources{
		plimsoll.CPU: 128_000, plimsoll.Memory: 1024 * gib, plimsoll.Disk: 12288 * gib,
		simulate.GPUMilli: 8000, "rdma": 250,
	})
	w.AddNodes(4000, plimsoll.Resources{
		plimsoll.CPU: 192_000, plimsoll.Memory: 2048 * gib, plimsoll.Disk: 8192 * gib, "rdma": 200,
	})
	report := run(t, w)
	if report.Placed != len(w.Arrivals) || report.Waits.Max > 60 {
		t.Errorf("of %d instances %d were placed; the longest wait was %g s",
			len(w.Arrivals), report.Placed, report.Waits.Max)
	}
}

// BenchmarkOpenB packs the openb trace: 8,152 pods on 1,523 nodes. The time is that of the turns,
// without the reading of the files.
//
//	go test ./internal/simulate -run '^$' -bench OpenB
func BenchmarkOpenB(b *testing.B) {
	w := readPods(b, "openb/openb_pod_list_default.csv", 8152)
	nodes, err := simulate.ReadOpenBNodes("nodes", openTrace(b, "openb/openb_node_list_all_node.csv"))
	if err != nil {
		b.Fatal(err)
	}
	w.Nodes = nodes
	w.Pack()
	var spent time.Duration
	for b.Loop() {
		_, timing, err := simulate.Run(&simulate.Config{
			Queues: plimsoll.DefaultQueues(), Seed: 1, Clock: func() int64 { return time.Now().UnixNano() },
		}, w)
		if err != nil {
			b.Fatal(err)
		}
		spent += time.Duration(timing.Scheduling)
	}
	b.ReportMetric(spent.Seconds()/float64(b.N), "s-of-scheduling")
}
