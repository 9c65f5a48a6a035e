package agent

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// BenchmarkLiveTasks lists the live tasks of a node, as the QoS loop does every second, with and
// without a change.
func BenchmarkLiveTasks(b *testing.B) {
	for _, tasks := range []int{200, 1000} {
		dir := b.TempDir()
		out, _, err := openOutbox(filepath.Join(dir, "reports"))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := out.close(); err != nil {
				b.Error(err)
			}
		})
		l := newLedger("n1", dir, out, func(Trouble) {})
		l.beginAttempts()
		l.beginList()
		for i := range tasks {
			id := plimsoll.TaskID("job", "group", int32(i))
			l.attempts([]executor.Status{live(id, 1, plimsoll.TaskRunning)}, false)
			l.assign([]assignmentOf{owned(id, 1, plimsoll.TaskRunning)}, nil, false)
		}
		l.attempts(nil, true)
		l.assign(nil, nil, true)
		b.Run(fmt.Sprintf("tasks=%d/unchanged", tasks), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.liveTasks()
			}
		})
		b.Run(fmt.Sprintf("tasks=%d/changed", tasks), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.mu.version++
				if got := len(l.liveTasks()); got != tasks {
					b.Fatalf("%d tasks", got)
				}
			}
		})
	}
}
