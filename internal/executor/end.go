package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// Bounds on killing: the length of one try, and the pause before the next while the main process
// has not ended.
const (
	killTime  = 10 * time.Second
	killAgain = 5 * time.Second
)

// outcome is the end of a main process.
type outcome struct {
	status   syscall.WaitStatus
	known    bool // false: an earlier supervisor was the parent, so the status is unknown
	oomKills int64
}

// classify turns an outcome into the record of the end.
func classify(o outcome, stop *stopRequest, limits attemptLimits) exitRecord {
	r := exitRecord{ExitCode: -1, OOMKills: o.oomKills}
	if o.known {
		r.ExitCode = int32(o.status.ExitStatus())
		if o.status.Signaled() {
			r.Signal = int(o.status.Signal())
			r.ExitCode = int32(128 + r.Signal)
		}
	}
	// A shell reports a child that was killed by signal 9 as 137.
	killed := r.ExitCode == 128+int32(syscall.SIGKILL)
	switch {
	case stop != nil:
		r.Result, r.Message = stop.result, stop.message
	case !o.known:
		r.Result, r.Message = plimsoll.ResultUnknownExit, "the supervisor was restarted while it ran, so its exit code is not known"
	case r.ExitCode == 0:
		r.Result = plimsoll.ResultSucceeded
	case o.oomKills > 0 && killed:
		r.Result = plimsoll.ResultOutOfMemory
		r.Message = "it went over its memory limit of " + plimsoll.FormatQuantity(plimsoll.Memory, limits.Memory)
		if limits.Memory == 0 {
			r.Message = "it asked for no memory, and the tasks of its node had used all that they may have together"
		}
	default:
		r.Result, r.Message = plimsoll.ResultFailed, describe(o.status)
	}
	if o.oomKills > 0 && r.Result != plimsoll.ResultOutOfMemory {
		killed := "one of its processes was"
		if o.oomKills > 1 {
			killed = fmt.Sprintf("%d of its processes were", o.oomKills)
		}
		r.Message = strings.TrimPrefix(r.Message+"; "+killed+" killed for lack of memory", "; ")
	}
	return r
}

// describe says in words how a process ended.
func describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return fmt.Sprintf("signal %d (%v)", int(ws.Signal()), ws.Signal())
	}
	return fmt.Sprintf("exit code %d", ws.ExitStatus())
}

// exited is called once when the main process of an attempt has ended.
func (s *Supervisor) exited(a *attempt, ws syscall.WaitStatus, known bool) {
	at := s.now()
	s.mu.Lock()
	a.ending = true
	for _, t := range a.timers {
		t.Stop()
	}
	s.mu.Unlock()
	o := outcome{status: ws, known: known}
	if !s.spawn(func(ctx context.Context) { s.finish(ctx, a, o, at) }) {
		// Run is ending, and waits for the reaper. The exit code would be lost otherwise.
		s.finish(context.Background(), a, o, at)
	}
}

// finish records the end, kills the remaining processes, and publishes the end. The record is
// written first: if the supervisor dies meanwhile, the next one kills them.
func (s *Supervisor) finish(ctx context.Context, a *attempt, o outcome, at int64) {
	if a.group != nil {
		n, err := a.group.OOMKills()
		if err != nil {
			s.trouble(TroubleOOMKills, a.key, err)
		}
		o.oomKills = n
	}
	s.mu.Lock()
	r := classify(o, a.stop, a.limits)
	r.Started, r.PID = a.status.Started, a.status.PID
	s.mu.Unlock()
	r.Finished = at
	if err := writeExit(a.dir, r); err != nil {
		s.trouble(TroubleRecord, a.key, err)
		r.Message = strings.TrimPrefix(r.Message+"; its end could not be recorded: "+err.Error(), "; ")
	}
	if err := s.killRest(ctx, a); err != nil {
		s.trouble(TroubleRest, a.key, err)
		r.Message = strings.TrimPrefix(r.Message+"; processes are left that cannot be killed", "; ")
	}
	if _, err := trimLogs(a.logs, a.limits.LogLimit); err != nil {
		s.trouble(TroubleTrim, a.key, err)
	}
	s.release(ctx, a)
	s.publishEnd(a, r)
}

// killRest kills the processes that remain after the main process.
func (s *Supervisor) killRest(ctx context.Context, a *attempt) error {
	sid := a.status.PID // set before the process ran, and constant since
	if a.group == nil && sid != 0 {
		// The pid was reaped. While a member of its session lives, no new process can get that pid.
		// So if a process has it, its session is a different one.
		_, taken, err := readProcess(sid)
		if err != nil {
			return err
		}
		if taken {
			sid = 0
		}
	}
	return s.killTree(ctx, a, sid)
}

// killTree kills all processes of the attempt, with SIGKILL, and returns when none is left.
func (s *Supervisor) killTree(ctx context.Context, a *attempt, sid int) error {
	// The kill is short, and runs to its end even when the supervisor is stopping.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if a.group != nil {
		return a.group.Kill(ctx)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	pauses := plimsoll.Backoff{First: time.Millisecond, Longest: 200 * time.Millisecond}
	for try := 1; ; try++ {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("kill the processes of %v: %w", a.key, ctx.Err())
		}
		// All processes are halted first, so that they cannot fork away from the second search. A
		// set-uid program may not be signaled without root's rights. The error is returned only
		// after all others were signaled, so that it does not save them.
		halted, err := processesOf(a, sid)
		if err != nil {
			return err
		}
		if len(halted) == 0 {
			return nil
		}
		denied := signalAll(halted, syscall.SIGSTOP)
		pids, err := processesOf(a, sid)
		if err != nil {
			return err
		}
		if err := errors.Join(denied, signalAll(pids, syscall.SIGKILL)); err != nil {
			return err
		}
		timer.Reset(pauses.Delay(try))
	}
}

// signalAll sends a signal to each of the processes, also after errors.
func signalAll(pids []int, sig syscall.Signal) error {
	var errs []error
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("send %v to process %d: %w", sig, pid, err))
		}
	}
	return errors.Join(errs...)
}

// release releases the machine's resources that an attempt holds, but for its directory.
func (s *Supervisor) release(ctx context.Context, a *attempt) {
	if a.group != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		defer cancel()
		if err := a.group.Remove(ctx); err != nil {
			s.trouble(TroubleRemove, a.key, err)
		}
	}
	for _, f := range a.logs {
		if err := f.Close(); err != nil {
			s.trouble(TroubleClose, a.key, err)
		}
	}
	if a.lock != nil {
		if err := a.lock.Close(); err != nil {
			s.trouble(TroubleUnlock, a.key, err)
		}
	}
}

func (s *Supervisor) publishEnd(a *attempt, r exitRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.apply(&a.status)
	a.timers = nil
	s.changed(a)
}

// stopAttempt begins to stop an attempt. Its process group gets SIGTERM, and after grace its whole
// control group SIGKILL. Grace zero means the spec's own grace. The first stop decides the result;
// a later one can only advance SIGKILL. An attempt that has ended stays as it is.
func (s *Supervisor) stopAttempt(key attemptKey, grace time.Duration, why stopRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempts[key]
	if a == nil {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no %v on this node", key)
	}
	s.beginStop(a, grace, why)
	return nil
}

// beginStop needs mu. Signals are sent under mu, so that an end before the signal is told apart
// from one after it.
func (s *Supervisor) beginStop(a *attempt, grace time.Duration, why stopRequest) {
	if a.ending || a.status.Ended() {
		return
	}
	// The start continues with the stop when the process exists.
	starting := a.status.State == plimsoll.TaskStarting
	if a.stop == nil && !starting {
		sent, err := s.terminate(a)
		if err != nil {
			s.trouble(TroubleTerminate, a.key, err)
		} else if !sent {
			return // it has ended by itself, and its end is about to be reported
		}
		a.status.State = plimsoll.TaskStopping
		s.changed(a)
	}
	if a.stop == nil {
		a.stop = &why
	}
	if grace <= 0 {
		grace = a.limits.KillGrace
	}
	if at := time.Now().Add(grace); a.killAt.IsZero() || at.Before(a.killAt) {
		a.killAt = at
		if !starting {
			s.armKill(a)
		}
	}
}

// armKill needs mu.
func (s *Supervisor) armKill(a *attempt) {
	a.timers = append(a.timers, time.AfterFunc(time.Until(a.killAt), func() {
		s.spawn(func(ctx context.Context) { s.killUntilEnded(ctx, a) })
	}))
}

// terminate asks the attempt's process group to end. A stopped or frozen process is woken, so that
// it gets the signal. sent is false if the process has ended.
func (s *Supervisor) terminate(a *attempt) (sent bool, err error) {
	if a.adopted != nil {
		sent, err = a.adopted.signal(syscall.SIGTERM, syscall.SIGCONT)
	} else {
		sent, err = s.reaper.signal(a.status.PID, syscall.SIGTERM, syscall.SIGCONT)
	}
	if a.group != nil && sent && err == nil {
		// Last, so that the signal is there when it wakes.
		err = withControl(a.group, (*cgroup.Control).Thaw)
	}
	return sent, err
}

// killUntilEnded kills all processes of the attempt. If the main process stays, because it sleeps
// in the kernel, another try follows later.
func (s *Supervisor) killUntilEnded(ctx context.Context, a *attempt) {
	s.mu.Lock()
	over, sid := a.ending, a.status.PID
	s.mu.Unlock()
	if over {
		return // finish kills the remaining processes
	}
	if err := s.killTree(ctx, a, sid); err != nil {
		s.trouble(TroubleKill, a.key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.ending {
		a.killAt = time.Now().Add(killAgain)
		s.armKill(a)
	}
}

// expire ends an attempt that has reached its maxRuntime.
func (s *Supervisor) expire(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginStop(a, 0, stopRequest{
		result:  plimsoll.ResultTimedOut,
		message: fmt.Sprintf("it ran longer than its maxRuntime of %v", a.limits.MaxRuntime),
	})
}

// armRuntime needs mu.
func (s *Supervisor) armRuntime(a *attempt) {
	if a.limits.MaxRuntime <= 0 {
		return
	}
	left := time.Duration(a.status.Started+int64(a.limits.MaxRuntime)-s.now()) * time.Nanosecond
	a.timers = append(a.timers, time.AfterFunc(max(left, 0), func() { s.expire(a) }))
}

// stoppable are the results that a stop may ask for.
var stoppable = []plimsoll.TaskResult{
	plimsoll.ResultKilled, plimsoll.ResultEvicted, plimsoll.ResultPreempted, plimsoll.ResultLost, plimsoll.ResultFailed,
	plimsoll.ResultTimedOut,
}

func validStop(r plimsoll.TaskResult) error {
	if !slices.Contains(stoppable, r) {
		return plimsoll.Invalid(
			"result", "an attempt cannot be stopped with the result %q; killed, evicted or preempted are possible", r,
		)
	}
	return nil
}
