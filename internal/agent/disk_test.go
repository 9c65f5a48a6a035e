package agent

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

const mib = int64(1) << 20

// gauge is a disk of 1,000 MiB with settable free space.
type gauge struct{ free atomic.Int64 } // MiB

func (g *gauge) measure(dir string) (disk.Space, error) {
	return disk.Space{Path: dir, Free: g.free.Load() * mib, Size: 1000 * mib}, nil
}

// A node whose disk is nearly full takes no new tasks and says why. Running tasks run on, and their
// ends are reported. With enough room the node takes tasks again.
func TestANodeWhoseDiskIsNearlyFullTakesNoNewTasks(t *testing.T) {
	w := newWorld(t)
	g := &gauge{}
	g.free.Store(500)
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	a, err := New(w.config(), Deps{Executor: w.executor, Events: eventsTo(w.log)})
	if err != nil {
		t.Fatal(err)
	}
	a.newLoop, a.machine.room = w.qos.make, g.measure
	stop, _ := w.start(a)
	w.await("the report that it runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
	w.cluster.look(func() {
		if _, closed := w.cluster.told(); closed {
			t.Error("it takes no new tasks, with half of the disk free")
		}
	})
	g.free.Store(49)
	w.await("that it takes no new tasks", func() bool { _, closed := w.cluster.told(); return closed })
	w.cluster.look(func() {
		why := w.cluster.nodeReports[len(w.cluster.nodeReports)-1].Report.SchedulingReason
		for _, word := range []string{w.dir, "49Mi free", "needs 50Mi"} {
			if !strings.Contains(why, word) {
				t.Errorf("the reason %q does not say %q", why, word)
			}
		}
	})
	if log := w.log.String(); !strings.Contains(log, string(TroubleDisk)) {
		t.Errorf("whoever runs the agent is not told:\n%s", log)
	}
	w.super.finish("j.g.0", 1, plimsoll.ResultFailed, 3)
	w.awaitEnd("j.g.0", 1, plimsoll.ResultFailed, 3)
	g.free.Store(55)
	w.await("that it takes tasks again", func() bool { _, closed := w.cluster.told(); return !closed })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A shortage is reported once, with the numbers of its beginning, and again after each
// registration. It is added to the loop's condition, which stands alone again when there is room.
func TestAShortageIsAddedToTheLoopsCondition(t *testing.T) {
	n := newNodeOutbox()
	n.registered()
	n.sent(t, "")
	n.setShortage("disk")
	n.sent(t, "1 disk")
	n.accepted()
	n.sent(t, "")
	n.registered()
	n.sent(t, "2 disk")
	n.accepted()
	n.add(closed("hot", "1"))
	n.sent(t, "3 disk; hot 1")
	n.accepted()
	n.setShortage("")
	n.sent(t, "4 hot")
	n.accepted()
	n.setShortage(strings.Repeat("ü", plimsoll.MaxQOSMessage))
	if r, _ := n.next(); len(r.SchedulingReason) > plimsoll.MaxQOSMessage || r.Validate() != nil {
		t.Errorf("a long reason: %d bytes, %v", len(r.SchedulingReason), r.Validate())
	}
}

// The disk is checked every second, and a report is made only when the gate shuts or opens.
func TestTheAgentsDiskIsLookedAtEverySecond(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		g, n := &gauge{}, newNodeOutbox()
		g.free.Store(500)
		w := diskWatch{dir: "/d", measure: g.measure, nodeOut: n, trouble: func(Trouble) {}}
		go w.run(t.Context())
		for i, step := range []struct {
			free int64
			want string // reported reason; none: no report
		}{
			{60, "none"},
			{45, "the disk of /d has 45Mi free and needs 50Mi"},
			{44, "none"},
			{54, "none"},
			{55, ""},
		} {
			g.free.Store(step.free)
			time.Sleep(diskInterval)
			synctest.Wait()
			got := "none"
			if r, _ := n.next(); r != nil {
				got = r.SchedulingReason
				n.accepted()
			}
			if got != step.want {
				t.Errorf("step %d, %d MiB free: told %q, want %q", i, step.free, got, step.want)
			}
		}
	})
}

// An agent that starts on a full disk waits for space, and then works.
func TestAnAgentWaitsForSpace(t *testing.T) {
	w := newWorld(t)
	if err := syscall.Mount("tmpfs", w.dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a file system of its own needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(w.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(w.dir, "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = file.Write(block)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	stop, ended := w.run(w.config())
	for !strings.Contains(w.log.String(), string(TroubleDisk)) {
		select {
		case <-ended:
			t.Fatalf("it ended: %v", stop())
		case <-w.ctx.Done():
			t.Fatal("it does not say that it waits for space")
		case <-time.After(time.Millisecond):
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	w.await("that it registers", func() bool { return w.cluster.registered })
	if err := stop(); err != nil {
		t.Error(err)
	}
}
