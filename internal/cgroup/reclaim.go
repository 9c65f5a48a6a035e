package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// Everything asks Reclaim for as much memory as possible.
const Everything = math.MaxInt64

// reclaimStep is the memory of one request to the kernel, so that Reclaim can stop in between.
const reclaimStep = 16 << 20

// reclaimSlot holds the call of Reclaim that is under way: at most one.
type reclaimSlot struct {
	sync.Mutex
	running *reclaimRun // nil: none
}

// reclaimRun is one call of Reclaim.
type reclaimRun struct {
	stopping atomic.Bool
	thread   atomic.Int64
	done     chan struct{} // closed when the goroutine has ended
	err      error         // valid when done is closed
}

// Reclaim asks the kernel to take memory from the group before a process must be killed for it. It
// returns the number of bytes that the group uses less than before.
//
// With v2 the file memory.reclaim takes page cache first, then memory that can be swapped. With v1
// there is only memory.force_empty, which drops all page cache of the group. It is used for
// Everything, or for at least the group's usage; a smaller request is ErrUnsupported. Lowering the
// soft limit of v1 would free nothing until the machine itself is short of memory. Lowering its
// hard limit for a moment could kill the task.
//
// Reclaim returns when ctx ends, and interrupts the kernel, which may take seconds to notice. Until
// then a second call is ErrBusy. Reclaiming less than the request is no error.
func (c *Control) Reclaim(ctx context.Context, bytes int64) (freed int64, err error) {
	if bytes <= 0 {
		return 0, plimsoll.Invalid("bytes", "%d bytes cannot be reclaimed; ask for more than 0", bytes)
	}
	m, v2, err := c.mountFor(memoryController)
	if err != nil {
		return 0, fmt.Errorf("reclaim memory of %s: %w", c.name, err)
	}
	before, err := c.memory(m, v2)
	if err != nil {
		return 0, fmt.Errorf("reclaim memory of %s: %w", c.name, err)
	}
	if !v2 && bytes < before {
		return 0, fmt.Errorf(
			"reclaim memory of %s: %w: cgroup v1 can only reclaim all that there is, %d bytes, not %d", c.name,
			ErrUnsupported, before, bytes,
		)
	}
	r, err := c.startReclaim(m, v2, min(bytes, before))
	if err != nil {
		return 0, fmt.Errorf("reclaim memory of %s: %w", c.name, err)
	}
	select {
	case <-r.done:
		err = r.err
	case <-ctx.Done():
		r.stop()
		err = &plimsoll.Error{Code: plimsoll.CodeDeadline, Msg: "the kernel was still at it", Err: ctx.Err()}
	}
	after, readErr := c.memory(m, v2)
	if readErr == nil {
		freed = max(before-after, 0)
	}
	if err = errors.Join(err, readErr); err != nil {
		return freed, fmt.Errorf("reclaim memory of %s: %w", c.name, err)
	}
	return freed, nil
}

func (c *Control) memory(m int, v2 bool) (int64, error) {
	if v2 {
		return c.readNumber(m, "memory.current")
	}
	return c.readNumber(m, "memory.usage_in_bytes")
}

func (c *Control) startReclaim(m int, v2 bool, bytes int64) (*reclaimRun, error) {
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	if c.reclaim.running != nil {
		return nil, ErrBusy
	}
	file := "memory.force_empty"
	if v2 {
		file = "memory.reclaim"
	}
	fd, err := c.open(m, file, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return nil, err
	}
	r := &reclaimRun{done: make(chan struct{})}
	c.reclaim.running = r
	go func() {
		err := r.run(fd, v2, bytes)
		r.err = errors.Join(kernelError(file, err), unix.Close(fd))
		c.reclaim.Lock()
		c.reclaim.running = nil
		c.reclaim.Unlock()
		close(r.done)
	}()
	return r, nil
}

// run asks the kernel step by step. The signals of stop interrupt its system call.
func (r *reclaimRun) run(fd int, v2 bool, bytes int64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.thread.Store(int64(unix.Gettid()))
	for bytes > 0 && !r.stopping.Load() {
		step, value := min(bytes, reclaimStep), []byte("0")
		if v2 {
			value = strconv.AppendInt(nil, step, 10)
		} else {
			step = bytes
		}
		_, err := unix.Write(fd, value)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN): // the group has no more to give
			return nil
		case err != nil:
			return err
		}
		bytes -= step
	}
	return nil
}

// stop interrupts the kernel and waits a moment for the goroutine to end. SIGURG is the signal with
// which the Go runtime interrupts threads, and has no other effect.
func (r *reclaimRun) stop() {
	r.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), timeToStop)
	defer cancel()
	// A late goroutine ends later; until then the group is busy.
	_ = retry(ctx, func() (bool, error) {
		select {
		case <-r.done:
			return true, nil
		default:
		}
		if thread := r.thread.Load(); thread != 0 {
			// The thread may have just ended.
			_ = unix.Tgkill(os.Getpid(), int(thread), unix.SIGURG)
		}
		return false, nil
	})
}

// stop ends the call that is under way, if any.
func (s *reclaimSlot) stop() {
	s.Lock()
	r := s.running
	s.Unlock()
	if r != nil {
		r.stop()
	}
}

// timeToStop is the longest wait for a system call that was interrupted.
const timeToStop = 100 * time.Millisecond
