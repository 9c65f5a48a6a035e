package executor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// BenchmarkStart measures the time from the request until the process runs: one after the other,
// and eight at once.
func BenchmarkStart(b *testing.B) {
	for _, m := range []mode{inGroups, bare, gated} {
		for _, atOnce := range []int{1, 8} {
			b.Run(fmt.Sprintf("mode=%s/parallel=%d", strings.ReplaceAll(m.name, " ", "-"), atOnce), func(b *testing.B) {
				benchmarkStart(b, newNode(b, m), atOnce)
			})
		}
	}
}

func benchmarkStart(b *testing.B, n *node, atOnce int) {
	tasks := make(chan string)
	done := make(chan []time.Duration, atOnce)
	b.ResetTimer()
	for range atOnce {
		go func() {
			var took []time.Duration
			for task := range tasks {
				begin := time.Now()
				s, err := n.Start(
					b.Context(),
					StartRequest{Task: task, Attempt: 1, Spec: plimsoll.GroupSpec{Command: []string{"/bin/true"}}},
				)
				if err != nil || s.PID == 0 {
					b.Errorf("started as %+v, %v", s, err)
				}
				took = append(took, time.Since(begin))
			}
			done <- took
		}()
	}
	i := 0
	for b.Loop() {
		tasks <- fmt.Sprintf("job.g.%d", i)
		i++
	}
	close(tasks)
	var all []time.Duration
	for range atOnce {
		all = append(all, <-done...)
	}
	b.StopTimer()
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-median/start")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "ms-p99/start")
}

// BenchmarkIdle reports the cost of a supervisor with 200 idle tasks.
func BenchmarkIdle(b *testing.B) {
	n := newNode(b, inGroups)
	const tasks = 200
	for i := range tasks {
		n.start(request(fmt.Sprintf("job.g.%d", i), "exec sleep 1000"))
	}
	pid := n.supervisorPID()
	for b.Loop() {
		if _, _, err := readProcess(pid); err != nil {
			b.Fatal(err)
		}
	}
	for _, field := range []string{"VmRSS", "Threads"} {
		b.ReportMetric(statusField(b, pid, field), field)
	}
	b.ReportMetric(0, "ns/op") // the loop itself is not measured
}

func statusField(b *testing.B, pid int, field string) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var v float64
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			if _, err := fmt.Sscan(rest, &v); err != nil {
				b.Fatal(err)
			}
			return v
		}
	}
	b.Fatalf("no %s in /proc/%d/status", field, pid)
	return 0
}
