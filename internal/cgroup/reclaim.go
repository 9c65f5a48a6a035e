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

// Everything asks Reclaim for all the memory that can be had.
const Everything = math.MaxInt64

// reclaimStep is how much the kernel is asked for at once, so that there is a chance to stop in
// between.
const reclaimStep = 16 << 20

// reclaims is what Reclaim has under way: at most one call.
type reclaims struct {
	sync.Mutex
	running *reclaiming // nil: none
}

type reclaiming struct {
	stopping atomic.Bool
	thread   atomic.Int64
	done     chan struct{} // closed when the goroutine has ended
	err      error         // valid when done is closed
}

// Reclaim asks the kernel to take memory from the group before anything has to be killed for it,
// and returns how many bytes less it uses than before. With v2 that is memory.reclaim: page cache
// first, and what can be swapped. With v1 there is only memory.force_empty, which drops all page
// cache of the group: it is used when Everything, or as much as the group uses, is asked for, and
// less is ErrUnsupported. (Lowering v1's soft limit frees nothing until the machine itself is short
// of memory, and lowering its hard limit for a moment can kill the task.)
//
// It returns when ctx ends, though the kernel may take seconds to notice: it is interrupted, and
// while it goes on all the same a second call is ErrBusy. Less than was asked for is no error.
func (c *Control) Reclaim(ctx context.Context, bytes int64) (freed int64, err error) {
	if bytes <= 0 {
		return 0, plimsoll.Invalid("bytes", "%d bytes cannot be reclaimed; ask for more than 0", bytes)
	}
	m, v2, err := c.with(memoryController)
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

func (c *Control) startReclaim(m int, v2 bool, bytes int64) (*reclaiming, error) {
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
	r := &reclaiming{done: make(chan struct{})}
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

// run asks the kernel step by step. Its system call is interrupted by signals, which are what stop
// sends.
func (r *reclaiming) run(fd int, v2 bool, bytes int64) error {
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
		case errors.Is(err, unix.EAGAIN): // there was not so much
			return nil
		case err != nil:
			return err
		}
		bytes -= step
	}
	return nil
}

// stop interrupts the kernel and waits a moment for the goroutine to end. SIGURG is the Go
// runtime's own for interrupting threads: it does nothing else.
func (r *reclaiming) stop() {
	r.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), timeToStop)
	defer cancel()
	_ = retry(ctx, func() (bool, error) { // what does not end in time ends later; until then the group is busy
		select {
		case <-r.done:
			return true, nil
		default:
		}
		if thread := r.thread.Load(); thread != 0 {
			_ = unix.Tgkill(os.Getpid(), int(thread), unix.SIGURG) // it may have ended this moment
		}
		return false, nil
	})
}

// stop ends what is under way, if anything is.
func (s *reclaims) stop() {
	s.Lock()
	r := s.running
	s.Unlock()
	if r != nil {
		r.stop()
	}
}

// timeToStop is how long a call of the kernel that was interrupted is waited for.
const timeToStop = 100 * time.Millisecond
