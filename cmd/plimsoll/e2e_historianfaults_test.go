package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/history/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// faultyCell is a cell whose history is on a disk of its own.
type faultyCell struct {
	*recordedCell
	rng    *rand.Rand
	rounds int
	asked  *client.Client // asks the history
}

// newFaultyCell mounts a disk of a few MiB for the history, starts the processes and follows their
// events.
func newFaultyCell(t *testing.T) *faultyCell {
	t.Helper()
	c := &faultyCell{
		recordedCell: &recordedCell{site: newSite(t), running: map[string]*daemon{}},
		rng:          rand.New(rand.NewPCG(testrun.Seed(t), 17)),
	}
	if err := os.Mkdir(c.path("historian.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", c.path("historian.d"), "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("a disk of its own needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(c.path("historian.d"), syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c.beginApart()
	c.asked = c.clientOf(c.history)
	ctx, stop := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	reader.Go(func() { _ = c.follow(ctx) }) // it ends with the context
	t.Cleanup(func() {
		stop()
		reader.Wait()
	})
	return c
}

// file is the history.
func (c *faultyCell) file() string { return c.path("historian.d", "events.db") }

// work submits some jobs.
func (c *faultyCell) work() {
	c.t.Helper()
	c.rounds++
	if err := c.submitSome(c.t.Context(), c.rounds, c.rng); err != nil {
		c.t.Fatal(err)
	}
}

// whole waits until all is quiet, and compares the history with the reader: it has each event once,
// without a gap, and the usage that they tell.
func (c *faultyCell) whole() {
	c.t.Helper()
	c.settle(c.t.Context())
	events := c.seen()
	c.compareEvents(c.asked, events)
	c.compareUsage(c.asked, events)
}

// seen returns the events that the reader has.
func (c *faultyCell) seen() []client.HistoryEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mu.events)
}

// told waits until the historian tells its trouble: in the log, at /healthz, and in its metric.
func (c *faultyCell) told(words string) {
	c.t.Helper()
	c.running["historian"].says(`msg="the history takes no events.*` + words)
	eventually(c.t, "/healthz tells it", func() error {
		if h := c.health(c.history); h.Status != "unavailable" || !strings.Contains(h.Reason, words) {
			return fmt.Errorf("it is %+v", h)
		}
		return nil
	})
	if up := c.metricOf(c.history, "plimsoll_historian_up"); up != "0" {
		c.t.Errorf("plimsoll_historian_up is %s", up)
	}
}

// On a full disk the history takes no events and says so. Questions about those that it has are
// answered. When there is room, and behind a kill, it has each event once, and nothing is missing.
func TestTheHistoryOnAFullDisk(t *testing.T) {
	t.Parallel()
	c := newFaultyCell(t)
	c.work()
	c.whole()
	before := len(c.seen())
	ballast, err := os.Create(c.path("historian.d", "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = ballast.Write(block)
	}
	if err := ballast.Close(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		c.work()
	}
	c.told("disk is full")
	known := 0
	for _, err := range c.asked.Timeline(t.Context(), client.TimelineFilter{}) {
		if err != nil {
			t.Fatalf("the question for what is there: %v", err)
		}
		known++
	}
	if known < before {
		t.Errorf("%d events are known, and %d were acknowledged", known, before)
	}
	c.running["historian"].kill()
	c.work()
	if err := os.Remove(ballast.Name()); err != nil {
		t.Fatal(err)
	}
	c.startRole("historian")
	c.whole()
	if up := c.metricOf(c.history, "plimsoll_historian_up"); up != "1" {
		t.Errorf("plimsoll_historian_up is %s", up)
	}
}

// The historian goes on by itself when a disk that was full has room.
func TestTheHistoryGoesOnWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	c := newFaultyCell(t)
	ballast := c.path("historian.d", "ballast")
	c.work()
	c.whole()
	if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk does not become full: %v", err)
	}
	for range 5 {
		c.work()
	}
	c.told("disk is full")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	c.whole()
}

// On a disk that is read-only the history takes no events, says what to do, and goes on by itself
// when it can write.
func TestTheHistoryOnAReadOnlyDisk(t *testing.T) {
	t.Parallel()
	c := newFaultyCell(t)
	c.work()
	c.whole()
	c.running["historian"].stop()
	if err := syscall.Mount("", c.path("historian.d"), "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	c.startRole("historian")
	c.work()
	c.told("mode of the file")
	if err := syscall.Mount("", c.path("historian.d"), "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	c.whole()
}

// A damaged file is told, and no answer is made of it. With the good file in its place the history
// goes on by itself, and nothing is missing.
func TestADamagedHistory(t *testing.T) {
	t.Parallel()
	c := newFaultyCell(t)
	c.work()
	c.whole()
	c.running["historian"].stop()
	w, err := sqlite.OpenWriter(t.Context(), c.file())
	if err == nil {
		err = w.Close() // as the last one that has the file open, it moves the log into it
	}
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(c.file())
	if err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(good)
	for at := 4096; at < len(bad); at += 8192 { // in each page
		bad[at] ^= 1
	}
	if err := os.WriteFile(c.file(), bad, 0o640); err != nil {
		t.Fatal(err)
	}
	c.startRole("historian")
	c.work()
	c.told("damaged")
	for _, args := range [][]string{{"history", "status"}, {"history", "jobs"}, {"usage"}, {"at", "1s"}} {
		_, stderr, code := run(t, append([]string{"--server", c.history}, args...)...)
		if code == 0 || !strings.Contains(stderr, "damaged") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	next := c.path("historian.d", "good.db")
	if err := errors.Join(os.WriteFile(next, good, 0o640), os.Rename(next, c.file())); err != nil {
		t.Fatal(err)
	}
	c.whole()
}

// Events that the gateways dropped while the historian was stopped are a gap with its exact ids.
// All others are there once, and behind the gap the cluster is that of the lists.
func TestEventsThatTheGatewaysDroppedAreAGap(t *testing.T) {
	t.Parallel()
	c := newFaultyCell(t)
	ctx := t.Context()
	const capacity = 300
	settings := []string{fmt.Sprint("ringBufferCapacity=", capacity), "ringBufferHeldBytes=0"}
	if _, stderr, code := c.cli(append([]string{"events", "config", "set"}, settings...)...); code != 0 {
		t.Fatal(stderr)
	}
	c.work()
	c.whole()
	before, err := c.asked.HistoryStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.running["historian"].kill()
	for range 100 {
		c.work()
		page, err := c.user.Events(ctx, client.EventFilter{Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		if page.Lowest > before.Next+100 {
			break
		}
		c.allEnd()
	}
	c.startRole("historian")
	c.settle(ctx)
	status, err := c.asked.HistoryStatus(ctx)
	if err != nil || len(status.Gaps) != 1 {
		t.Fatalf("the gaps are %+v, %v; want one", status.Gaps, err)
	}
	gap := status.Gaps[0]
	if gap.InstanceUUID != before.InstanceUUID || gap.First != before.Next || gap.Next <= gap.First+100 ||
		status.Next < gap.Next {
		t.Errorf("the gap is %+v; the history had the events up to %d", gap, before.Next)
	}
	want := slices.DeleteFunc(c.seen(), func(e client.HistoryEvent) bool {
		return e.ID >= gap.First && e.ID < gap.Next
	})
	c.sameEvents(c.asked, want)
	stdout, stderr, code := run(t, "--server", c.history, "history", "status")
	if told := fmt.Sprintf("%d", gap.Next-gap.First); code != 0 || !strings.Contains(stdout, told) {
		t.Errorf("the status does not tell the gap from %s on: %s%s", told, stdout, stderr)
	}
	c.work()
	c.settle(ctx)
	c.moments = nil
	eventually(t, "nothing happens while the lists are read", func() error {
		if err := c.look(ctx); err != nil || len(c.moments) > 0 {
			return err
		}
		return errors.New("something happened")
	})
	c.compareMoments(c.asked, c.seen())
}
