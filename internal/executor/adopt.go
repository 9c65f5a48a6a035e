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

// pollAdopted is how often an adopted process is looked at where the kernel has no pidfds (before
// Linux 5.3).
const pollAdopted = 500 * time.Millisecond

// adopted is a process that a supervisor before us started: it is not our child.
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

// adoptAll takes over every attempt in the agent's directory that was not forgotten, and ends what
// is in control groups of none.
func (s *Supervisor) adoptAll(ctx context.Context) error {
	root := filepath.Join(s.cfg.Dir, tasksDir)
	tasks, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for attempts: %w", err)
	}
	for _, task := range tasks {
		if !task.IsDir() {
			continue // nothing of ours
		}
		entries, err := os.ReadDir(filepath.Join(root, task.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else the agent has just put it away: all in it is over
			s.cfg.Events.Trouble(Trouble{Kind: TroubleAdopt, Task: task.Name(), Err: err})
		}
		for _, e := range entries {
			n, err := strconv.ParseInt(e.Name(), 10, 32)
			key := attemptKey{task.Name(), int32(n)}
			if err != nil || !e.IsDir() || key.validate() != nil {
				continue // the task's own directory, or nothing of ours
			}
			s.adoptFound(ctx, key)
		}
	}
	return s.sweepGroups(ctx)
}

// adopt finds out what has become of an attempt whose directory was there.
func (s *Supervisor) adopt(ctx context.Context, a *attempt) error {
	var exit exitRecord
	done, err := readJSON(filepath.Join(a.dir, exitFile), &exit)
	if err != nil {
		return s.adoptLost(ctx, a, attemptRecord{}, "how it ended cannot be read: "+err.Error())
	}
	if done {
		// The record was written before the rest was killed. What is left in its control group goes
		// with the sweep; without one, here.
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
	a.limits, a.uid, a.tenancy = r.Limits, r.UID, r.Tenancy
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
	p := &adopted{pid: r.PID, start: r.Start}
	if fd, err := unix.PidfdOpen(r.PID, unix.PIDFD_NONBLOCK); err == nil {
		if p.fd = os.NewFile(uintptr(fd), "pidfd"); !spare(fd) {
			_, p.fd = p.fd.Close(), nil
		}
	}
	// The pidfd was opened first, so if this is still the process of the record the pidfd is its.
	running, err := alive(r.PID, r.Start)
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
			_ = p.fd.Close() // the supervisor stops; the process goes on
		}
	})
	return nil
}

// keptDescriptors are left to connections and to attempts that are started.
const keptDescriptors = 64

// spare reports whether a descriptor may be held that could be done without.
func spare(fd int) bool {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return err != nil || uint64(fd)+keptDescriptors < limit.Cur
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

// adoptLost ends an attempt of which nothing good can be said. Whatever of it may run is killed
// first.
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
	if err := s.killTree(ctx, a, 0); err != nil { // one that was born, but not yet put in its group
		return err
	}
	end := exitRecord{
		Result: plimsoll.ResultLost, ExitCode: -1, Message: message, Started: r.Started, Finished: s.now(), PID: r.PID,
	}
	if err := writeExit(a.dir, end); err != nil { // the next supervisor will find the same
		s.trouble(TroubleRecord, a.key, err)
	}
	s.publishEnd(a, end)
	return nil
}

// sweepGroups ends what runs in control groups of attempts that have ended or are not known.
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
		if !a.status.Ended() { // one that could not be taken over yet has no group here
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

// endGroup ends what runs in a control group of no attempt, and removes it.
func (s *Supervisor) endGroup(ctx context.Context, name string) error {
	g, err := s.tree.Open(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	if name != ownGroup { // where older supervisors were, of which one may be ending
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

// waitReadable waits with Go's poller, on no thread: a pidfd is readable when its process has
// ended.
func (p *adopted) waitReadable(ctx context.Context, conn syscall.RawConn) bool {
	stop := context.AfterFunc(ctx, func() {
		_ = p.fd.SetReadDeadline(time.Unix(1, 0)) // wakes the read up; it cannot fail on a file that is polled
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
