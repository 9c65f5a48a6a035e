package processes

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal notes what happens to processes.
type journal struct {
	mu    sync.Mutex
	lines []string
	pids  map[string]int
	news  chan struct{}
}

func newJournal() *journal { return &journal{pids: map[string]int{}, news: make(chan struct{}, 100)} }

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	j.news <- struct{}{}
}

func (j *journal) events() Events {
	return Events{
		Started: func(name string, pid int) {
			j.mu.Lock()
			j.pids[name] = pid
			j.mu.Unlock()
			j.note("started " + name)
		},
		Ended: func(name, how string, _ time.Duration) { j.note(name + ": " + how) },
	}
}

// until waits until the journal has n lines, and returns them.
func (j *journal) until(n int) []string {
	for {
		j.mu.Lock()
		lines := j.lines
		j.mu.Unlock()
		if len(lines) >= n {
			return lines
		}
		<-j.news
	}
}

func (j *journal) pid(name string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.pids[name]
}

var soon = plimsoll.Backoff{First: time.Millisecond, Longest: 10 * time.Millisecond}

// shell is a process that runs until it gets SIGTERM, and says so in a file that all share.
func shell(name, log string) Process {
	return Process{Name: name, Command: []string{
		"sh", "-c", "trap 'echo " + name + " >> " + log + "; exit 0' TERM; echo up; while :; do sleep 0.01; done",
	}}
}

// untilUp waits until a shell has set its trap for the n-th time.
func untilUp(dir, name string, n int) {
	for {
		log, err := os.ReadFile(filepath.Join(dir, name+".log"))
		if err == nil && bytes.Count(log, []byte("up\n")) == n {
			return
		}
		<-time.After(time.Millisecond)
	}
}

// Processes are started in order and ended in the opposite one. One that is killed is started
// again, with the same file of output.
func TestProcessesAreKeptRunningAndEndInTheOppositeOrder(t *testing.T) {
	dir := t.TempDir()
	ended := filepath.Join(dir, "ended")
	j := newJournal()
	g := New(Config{Logs: dir, Restart: soon, Events: j.events()})
	ctx, cancel := context.WithCancel(t.Context())
	up, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- g.Run(ctx, []Process{shell("a", ended), shell("b", ended), shell("c", ended)}, func() { close(up) })
	}()
	<-up
	untilUp(dir, "b", 1)
	if err := syscall.Kill(j.pid("b"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(j.until(5), "; ")
	if want := "started a; started b; started c; b: signal: killed: up; started b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	untilUp(dir, "a", 1)
	untilUp(dir, "b", 2)
	untilUp(dir, "c", 1)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if order, err := os.ReadFile(ended); err != nil || string(order) != "c\nb\na\n" {
		t.Errorf("they ended in the order %q, %v", order, err)
	}
}

// When a process cannot be started, or does not become ready, those before it are ended, and the
// error says where its output is.
func TestAProcessThatDoesNotBecomeReadyEndsAll(t *testing.T) {
	never := func(context.Context) error { return errors.New("nobody answers") }
	for name, c := range map[string]struct {
		last Process
		want string
	}{
		"not ready":   {Process{Name: "b", Command: []string{"sleep", "60"}, Ready: never}, "b.log"},
		"not started": {Process{Name: "b", Command: []string{"/nonexistent"}}, "start b"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal()
			g := New(Config{Logs: t.TempDir(), Restart: soon, Events: j.events()})
			err := g.Run(t.Context(), []Process{{Name: "a", Command: []string{"sleep", "60"}}, c.last}, func() {
				t.Error("all are ready")
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if err := syscall.Kill(j.pid("a"), 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("process a lives: %v", err)
			}
		})
	}
}

// The output of a process takes at most two files of LogBytes.
func TestOutputIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	o, err := newOutput(path)
	if err != nil {
		t.Fatal(err)
	}
	piece := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	for range 40 {
		if _, err := o.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + ".old"} {
		if info, err := os.Stat(p); err != nil || info.Size() > LogBytes || info.Size() == 0 {
			t.Errorf("%s: %v, %v", p, info, err)
		}
	}
}
