package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// Page cache of a group can be reclaimed. Memory of a tmpfs is no page cache, so the amount is
// checked only where the temporary directory is on a disk.
func TestReclaimGivesPageCacheBack(t *testing.T) {
	defer goleak.VerifyNone(t)
	eachControl(t, memoryController, func(t *testing.T, g *Group, c *Control) {
		file := filepath.Join(t.TempDir(), "data")
		const size = 16 << 20
		cmd := shell(
			t, g,
			"dd if=/dev/zero of="+file+" bs=1048576 count="+strconv.Itoa(
				size>>20,
			)+" conv=fsync 2>/dev/null; exec dd if="+file+" of=/dev/null bs=1048576 2>/dev/null",
		)
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		before := reading(t, g)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		freed, err := c.Reclaim(ctx, Everything)
		after := reading(t, g)
		t.Logf("freed %d bytes; in use without page cache %d before and %d after", freed, before.Memory, after.Memory)
		var stat unix.Statfs_t
		if err := unix.Statfs(filepath.Dir(file), &stat); err != nil {
			t.Fatal(err)
		}
		onDisk := stat.Type != unix.TMPFS_MAGIC && stat.Type != unix.RAMFS_MAGIC
		// Without page cache the kernel keeps trying.
		if err != nil && (onDisk || !errors.Is(err, context.DeadlineExceeded)) {
			t.Error(err)
		}
		if onDisk && freed < size/2 {
			t.Errorf("freed %d bytes of %d of page cache", freed, size)
		}
		if onDisk && before.Memory > size/2 {
			t.Errorf("page cache counts as %d bytes in use", before.Memory)
		}
		if _, err := c.Reclaim(t.Context(), 0); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("reclaiming nothing: %v", err)
		}
	})
}

// Reclaim returns when its context ends, however long the kernel takes. Close ends its goroutine.
func TestReclaimIsBoundedByItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	eachControl(t, memoryController, func(t *testing.T, g *Group, c *Control) {
		cmd := shell(t, g, "exec sleep 1000")
		eventually(t, "memory in use", func() bool { return reading(t, g).Memory > 0 })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := c.Reclaim(ctx, Everything); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		eventually(t, "the kernel being done", func() bool {
			_, err := c.Reclaim(ctx, Everything)
			return !errors.Is(err, ErrBusy)
		})
		if err := g.Kill(timeLimit(t)); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
}

// A second call is a conflict while the first is under way.
func TestReclaimOneAtATime(t *testing.T) {
	defer goleak.VerifyNone(t)
	c, fifo := reclaimThatBlocks(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Reclaim(ctx, Everything); plimsoll.CodeOf(err) != plimsoll.CodeDeadline ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Reclaim(
		t.Context(), Everything,
	); !errors.Is(err, ErrBusy) || plimsoll.CodeOf(err) != plimsoll.CodeConflict {
		t.Errorf("a second call: %v", err)
	}
	if err := errors.Join(c.Close(), fifo.Close()); err != nil {
		t.Error(err)
	}
}

// reclaimThatBlocks returns a Control whose memory.reclaim is a full pipe. A write to it lasts
// until the reading end is closed, signals or not.
func reclaimThatBlocks(t *testing.T) (*Control, *os.File) {
	t.Helper()
	h, err := Detect(fakeV2(t, "cpu memory"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Subtree("plimsoll/n1")
	if err != nil {
		t.Fatal(err)
	}
	g := create(t, s, Limits{})
	path := filepath.Join(g.dirs[0], "memory.reclaim")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	for n := 1; n > 0; {
		n, _ = unix.Write(int(f.Fd()), make([]byte, 4096)) // until it is full
	}
	c, err := g.Control()
	if err != nil {
		t.Fatal(err)
	}
	return c, f
}
