package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// pollAdopted is the interval of checking an adopted process where the kernel has no pidfds (before
// Linux 5.3).
const pollAdopted = 500 * time.Millisecond

// adopted is a process that an earlier supervisor started, and thus no child of this one.
type adopted struct {
	pid   int
	start uint64
	fd    *os.File // pidfd; nil: none
}

// signal sends signals to the process group. sent is false if the process has ended.
func (p *adopted) signal(signals ...syscall.Signal) (sent bool, err error) {
	ok, err := alive(p.pid, p.start)
	if err != nil || !ok {
		return false, err
	}
	for _, sig := range signals {
		if err := syscall.Kill(-p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return false, fmt.Errorf("send %v to process group %d: %w", sig, p.pid, err)
		}
	}
	return true, nil
}

// adoptAll takes over every attempt in the agent's directory that was not forgotten. It ends
// processes in control groups that belong to no running attempt.
func (s *Supervisor) adoptAll(ctx context.Context) error {
	root := filepath.Join(s.cfg.Dir, tasksDir)
	tasks, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for attempts: %w", err)
	}
	for _, task := range tasks {
		if !task.IsDir() {
			continue // not a task's directory
		}
		entries, err := os.ReadDir(filepath.Join(root, task.Name()))
		// No error: the agent has just removed the directory, so its attempts are over.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Events.Trouble(Trouble{Kind: TroubleAdopt, Task: task.Name(), Err: err})
		}
		for _, e := range entries {
			n, err := strconv.ParseInt(e.Name(), 10, 32)
			key := attemptKey{task.Name(), int32(n)}
			if err != nil || !e.IsDir() || key.validate() != nil {
				continue // the task's own directory, or not an attempt's
			}
			s.adoptFound(ctx, key)
		}
	}
	return s.sweepGroups(ctx)
}

// adopt finds the present state of an attempt whose directory exists.
func (s *Supervisor) adopt(ctx context.Context, a *attempt) error {
	var exit exitRecord
	done, err := readJSON(filepath.Join(a.dir, exitFile), &exit)
	if err != nil {
		return s.adoptLost(ctx, a, attemptRecord{}, "how it ended cannot be read: "+err.Error())
	}
	if done {
		// The record was written before the remaining processes were killed. The sweep kills those
		// in a control group; without one they are killed here.
		if s.tree == nil {
			if err := s.killTree(ctx, a, 0); err != nil {
				s.trouble(TroubleRest, a.key, err)
			}
		}
		s.publishEnd(a, exit)
		return nil
	}
	var r attemptRecord
	begun, err := readJSON(filepath.Join(a.dir, attemptFile), &r)
	if err != nil {
		return s.adoptLost(ctx, a, r, "its record cannot be read: "+err.Error())
	}
	if !begun {
		return s.adoptLost(
			ctx, a, r, "the supervisor ended while it started this attempt; if the program ran at all, it was killed",
		)
	}
	a.limits, a.uid, a.ownership = r.Limits, r.UID, r.Ownership
	a.status.PID, a.status.Started = r.PID, r.Started
	if r.Boot != s.boot {
		return s.adoptLost(ctx, a, r, "the machine was restarted while it ran")
	}
	if a.lock, err = s.lockAttempt(a); err != nil {
		return err
	}
	if a.logs, err = openLogs(a.dir); err != nil {
		s.trouble(TroubleTrim, a.key, err)
	}
	if r.Cgroup != "" && s.tree != nil {
		if a.group, err = s.tree.Open(r.Cgroup); err != nil {
			return err
		}
	}
	return s.adoptProcess(a, r.PID, r.Start)
}

// adoptProcess follows the main process of an adopted attempt to its end, which may have come
// already.
func (s *Supervisor) adoptProcess(a *attempt, pid int, start uint64) error {
	p := &adopted{pid: pid, start: start}
	if fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK); err == nil {
		if p.fd = os.NewFile(uintptr(fd), "pidfd"); !hasSpareDescriptors(fd) {
			_, p.fd = p.fd.Close(), nil
		}
	}
	// The pidfd was opened before this check, so it belongs to the process of the record.
	running, err := alive(pid, start)
	if err != nil {
		if p.fd != nil {
			_ = p.fd.Close() // nothing was written to it
		}
		return err
	}
	s.mu.Lock()
	a.adopted = p
	if running {
		a.status.State = plimsoll.TaskRunning
		s.armRuntime(a)
		s.changed(a)
	}
	s.mu.Unlock()
	if !running {
		s.adoptedEnded(a)
		return nil
	}
	s.spawn(func(ctx context.Context) {
		if p.wait(ctx) {
			s.adoptedEnded(a)
		} else if p.fd != nil {
			_ = p.fd.Close() // the supervisor stops; the process runs on
		}
	})
	return nil
}

// reservedDescriptors are left for connections and for attempts that start.
const reservedDescriptors = 64

// hasSpareDescriptors reports whether the process may hold fd, which it can do without.
func hasSpareDescriptors(fd int) bool {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return err != nil || uint64(fd)+reservedDescriptors < limit.Cur
}

func (s *Supervisor) adoptedEnded(a *attempt) {
	if a.adopted.fd != nil {
		_ = a.adopted.fd.Close() // nothing was written to it
	}
	s.exited(a, 0, false)
}

func (s *Supervisor) lockAttempt(a *attempt) (*os.File, error) {
	lock, ok, err := lockPath(filepath.Join(a.dir, lockFile))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, plimsoll.Errorf(
			plimsoll.CodeAlreadyRunning, "another process holds the lock in %s; stop it first", a.dir,
		)
	}
	return lock, nil
}

// adoptLost kills the processes of an attempt, and then ends the attempt as lost.
func (s *Supervisor) adoptLost(ctx context.Context, a *attempt, r attemptRecord, message string) error {
	if s.tree != nil {
		g, err := s.tree.Open(CgroupName(a.key.task, a.key.attempt))
		if err != nil {
			return err
		}
		a.group = g
		if err := s.killTree(ctx, a, 0); err != nil {
			return err
		}
		s.release(ctx, a)
		a.group = nil
	}
	// A process may have been forked, but not be in its group yet.
	if err := s.killTree(ctx, a, 0); err != nil {
		return err
	}
	end := exitRecord{
		Result: plimsoll.ResultLost, ExitCode: -1, Message: message, Started: r.Started, Finished: s.now(), PID: r.PID,
	}
	if err := writeExit(a.dir, end); err != nil { // the next supervisor will come to the same end
		s.trouble(TroubleRecord, a.key, err)
	}
	s.publishEnd(a, end)
	return nil
}

// sweepGroups ends processes in control groups of attempts that have ended or are unknown.
func (s *Supervisor) sweepGroups(ctx context.Context) error {
	if s.tree == nil {
		return nil
	}
	names, err := s.tree.List()
	if err != nil {
		return err
	}
	var keep []string
	s.mu.Lock()
	for _, a := range s.attempts {
		if a.group != nil {
			keep = append(keep, a.group.Name())
		}
		if !a.status.Ended() { // an attempt that is not taken over yet has no group here
			keep = append(keep, CgroupName(a.key.task, a.key.attempt))
		}
	}
	s.mu.Unlock()
	for _, name := range names {
		if slices.Contains(keep, name) {
			continue
		}
		if err := s.endGroup(ctx, name); err != nil {
			s.cfg.Events.Trouble(Trouble{Kind: TroubleLeftOver, Group: name, Err: err})
		}
	}
	return nil
}

// endGroup ends the processes in a control group without attempt, and removes the group.
func (s *Supervisor) endGroup(ctx context.Context, name string) error {
	g, err := s.tree.Open(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	if name != ownGroup { // older supervisors were in this group, and one may still be ending
		err = g.Kill(ctx)
	}
	return errors.Join(err, g.Remove(ctx))
}

// wait returns true when the process has ended, false when ctx has.
func (p *adopted) wait(ctx context.Context) bool {
	if p.fd != nil {
		if conn, err := p.fd.SyscallConn(); err == nil {
			return p.waitReadable(ctx, conn)
		}
	}
	tick := time.NewTicker(pollAdopted)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if ok, err := alive(p.pid, p.start); err == nil && !ok {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// waitReadable waits with Go's poller, so it holds no thread. A pidfd is readable when its process
// has ended.
func (p *adopted) waitReadable(ctx context.Context, conn syscall.RawConn) bool {
	stop := context.AfterFunc(ctx, func() {
		// Wakes the read; no error is possible on a polled file.
		_ = p.fd.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	ended := false
	err := conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		ended = err == nil && n > 0
		return ended
	})
	return err == nil && ended
}
