package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// errStopped is in the chain of errStopping.
var errStopped = errors.New("the supervisor is stopping")

func errStopping() error {
	return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Msg: "try again", Err: errStopped}
}

// startAttempt starts an attempt, unless it was started before. It returns the status when the
// process runs or could not be started.
func (s *Supervisor) startAttempt(ctx context.Context, req *StartRequest) (Status, error) {
	key := attemptKey{req.Task, req.Attempt}
	if err := key.validate(); err != nil {
		return Status{}, err
	}
	a, fresh := s.reserve(key)
	if !fresh {
		select {
		case <-a.startDone:
			return s.statusOf(a), a.startErr
		case <-ctx.Done():
			return Status{}, fmt.Errorf("wait for the start of %v: %w", key, ctx.Err())
		}
	}
	made, err := s.makeDir(a)
	if err != nil {
		s.unreserve(a, err)
		return Status{}, err
	}
	if !made {
		return s.startedBefore(ctx, a)
	}
	s.show(a)
	// The caller may leave, but a start that has begun is completed.
	started := make(chan struct{})
	if !s.spawn(func(ctx context.Context) {
		defer close(started)
		s.begin(ctx, a, req)
	}) {
		s.failStart(ctx, a, errStopping())
		return s.statusOf(a), nil
	}
	<-started
	return s.statusOf(a), nil
}

// reserve returns the attempt; fresh tells the caller to start it.
func (s *Supervisor) reserve(key attemptKey) (a *attempt, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.attempts[key]; a != nil {
		return a, false
	}
	a = newAttempt(key, AttemptDir(s.cfg.Dir, key.task, key.attempt))
	a.hidden = true
	s.attempts[key] = a
	return a, true
}

// show makes an attempt visible to watchers. From here on they also see its end.
func (s *Supervisor) show(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed(a)
}

// unreserve gives up an attempt whose directory could not be used. No watcher has seen it, and it
// can be started again.
func (s *Supervisor) unreserve(a *attempt, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.attempts, a.key)
	a.startErr = cause
	close(a.startDone)
}

// makeDir makes the attempt's directory; made is false if it existed. The directory becomes durable
// with the record, before the program runs.
func (s *Supervisor) makeDir(a *attempt) (made bool, err error) {
	task := filepath.Dir(a.dir)
	for _, dir := range []string{filepath.Dir(task), task} {
		if err := makePassage(dir); err != nil {
			return false, noDirectory(a, err)
		}
	}
	err = os.Mkdir(a.dir, privateMode)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, noDirectory(a, err)
	}
	return true, nil
}

// noDirectory is the error for the log and for the agent, which reports a fault of the node.
func noDirectory(a *attempt, err error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeConflict, Msg: fmt.Sprintf("the directory of %v cannot be made: %v", a.key, err),
	}
}

// startedBefore returns the status of an attempt whose directory existed. It was forgotten, or an
// earlier supervisor left it.
func (s *Supervisor) startedBefore(ctx context.Context, a *attempt) (Status, error) {
	if err := s.adopt(ctx, a); err != nil {
		s.dropAdoption(a)
		s.unreserve(a, err)
		return Status{}, err
	}
	close(a.startDone)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(filepath.Join(a.dir, forgotten)); err == nil {
		delete(s.attempts, a.key)
	}
	return a.status, nil
}

func (s *Supervisor) statusOf(a *attempt) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.status
}

// begin starts the process in the attempt's new directory.
func (s *Supervisor) begin(ctx context.Context, a *attempt, req *StartRequest) {
	a.limits = limitsOf(&req.Spec)
	if err := s.launchAttempt(ctx, a, req); err != nil {
		s.failStart(ctx, a, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(a.startDone)
	if a.status.Ended() {
		return // the program has already ended
	}
	a.status.State = plimsoll.TaskRunning
	s.changed(a)
	if a.ending {
		return
	}
	s.armRuntime(a)
	if why := a.stop; why != nil {
		a.stop = nil
		grace := max(time.Until(a.killAt), 1)
		a.killAt = time.Time{}
		s.beginStop(a, grace, *why)
	}
}

// failStart records that the program never ran.
func (s *Supervisor) failStart(ctx context.Context, a *attempt, cause error) {
	r := exitRecord{Result: plimsoll.ResultNeverStarted, ExitCode: -1, Message: cause.Error(), Finished: s.now()}
	var reason *neverStarted
	if errors.Is(cause, errStopped) {
		r.Result = plimsoll.ResultLost // neither the task's fault nor the node's
	} else if errors.As(cause, &reason) {
		r.ExitCode = reason.exitCode
	} else {
		r.Result = plimsoll.ResultNodeFault
		s.trouble(TroubleStart, a.key, cause)
	}
	if err := writeExit(a.dir, r); err != nil {
		s.trouble(TroubleRecord, a.key, err)
	}
	s.release(ctx, a)
	s.publishEnd(a, r)
	close(a.startDone)
}

// launchAttempt prepares the attempt's user, directories and control group, and starts the program.
func (s *Supervisor) launchAttempt(ctx context.Context, a *attempt, req *StartRequest) (err error) {
	lock, ok, err := lockPath(filepath.Join(a.dir, lockFile))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("another process holds the lock in %s", a.dir)
	}
	a.lock = lock
	taskDir := TaskDir(s.cfg.Dir, a.key.task)
	user, err := identify(&req.Spec, &req.Users)
	if err != nil {
		return err
	}
	if err := s.assignUser(ctx, a, req, &user); err != nil {
		return err
	}
	if err := makeWorkDir(taskDir, req.Spec.WorkDir, &user); err != nil {
		return err
	}
	cmd, err := prepare(req, taskDir, user)
	if err != nil {
		return err
	}
	start := &launch{command: cmd}
	if start.files, err = openStreams(a.dir); err != nil {
		return err
	}
	a.logs = start.files[1:]
	defer s.closeStarted(a, start)
	if err := chownOutput(user.cred, start.files[1:]); err != nil {
		return err
	}
	if err := s.makeGroup(a, req, start); err != nil {
		return err
	}
	start.record = func(pid int) error { return s.record(a, req.Job, pid) }
	start.exited = func(ws syscall.WaitStatus) { s.exited(a, ws, true) }
	return s.launcher.do(start)
}

// closeStarted closes this process's copies of the program's files, but for its logs. The program
// may have written already, and on a network file system close also reports failed writes of
// others. So an error here does not mean that the start failed.
func (s *Supervisor) closeStarted(a *attempt, start *launch) {
	files := start.files[:1:1]
	if start.cgroup != nil {
		files = append(files, start.cgroup)
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			s.trouble(TroubleClose, a.key, err)
		}
	}
}

// makeGroup makes the attempt's control group with its limits and weight, and opens it for the
// fork. It also sets the common memory limit of the node's tasks. Without control groups it does
// nothing.
func (s *Supervisor) makeGroup(a *attempt, req *StartRequest, start *launch) error {
	if s.tree == nil || req.NoCgroup {
		return nil
	}
	s.limitTasks(a, req.TasksMemory)
	limits := groupLimits(req.Spec.Resources)
	limits.Pids = req.Pids
	g, err := s.tree.Create(CgroupName(a.key.task, a.key.attempt), limits)
	if err != nil {
		return err
	}
	a.group = g
	if shares := yieldingShares(&req.Spec); shares > 0 {
		if err := withControl(
			g, func(c *cgroup.Control) error { return c.SetScheduling(cgroup.Scheduling{Shares: shares}) },
		); err != nil {
			return err
		}
	}
	start.cgroup, err = g.FD()
	return err
}

// withControl calls do with the control of a group. An operation that the machine lacks, or a group
// that is gone, is no error.
func withControl(g *cgroup.Group, do func(*cgroup.Control) error) error {
	c, err := g.Control()
	if err == nil {
		err = errors.Join(do(c), c.Close())
	}
	if errors.Is(err, cgroup.ErrGone) || errors.Is(err, cgroup.ErrUnsupported) {
		return nil
	}
	return err
}

// record puts a process into its control group, or marks it where there are none, and writes
// attempt.json durably. The group comes first, so that a later kill reaches the process. A process
// of an attempt that asked for no memory gets the highest oom_score_adj.
func (s *Supervisor) record(a *attempt, job string, pid int) error {
	r := attemptRecord{
		Job: job, PID: pid, Boot: s.boot, Started: s.now(), Limits: a.limits, UID: a.uid, Ownership: a.ownership,
	}
	if a.group != nil {
		if err := a.group.Add(pid); err != nil {
			return err
		}
		r.Cgroup = a.group.Name()
	}
	if a.group == nil {
		setLimitMark(pid, a.limitMark())
	}
	if a.limits.Memory == 0 {
		raiseOOMScore(pid)
	}
	p, ok, err := readProcess(pid)
	if err != nil {
		return err
	}
	if !ok {
		return cannotStart("process %d is gone before it could run", pid)
	}
	r.Start = p.start
	if err := writeJSON(filepath.Join(a.dir, attemptFile), r); err != nil {
		return err
	}
	// One journal commit holds them all; the later syncs have nothing left to do.
	task := filepath.Dir(a.dir)
	for _, dir := range []string{a.dir, task, filepath.Dir(task)} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.status.PID, a.status.Started = pid, r.Started
	return nil
}

// openStreams opens the program's stdin, stdout and stderr.
func openStreams(dir string) (files []*os.File, err error) {
	open := func(path string, flag int) {
		f, e := os.OpenFile(path, flag, 0o600)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("open the program's files: %w", e))
			return
		}
		files = append(files, f)
	}
	open(os.DevNull, os.O_RDONLY)
	for _, stream := range streams {
		open(filepath.Join(dir, stream), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL)
	}
	if err != nil {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	return files, nil
}

// chownOutput gives the task's output files to its user.
func chownOutput(cred *syscall.Credential, files []*os.File) error {
	if cred == nil {
		return nil
	}
	uid, gid := int(cred.Uid), int(cred.Gid)
	for _, f := range files {
		if err := f.Chown(uid, gid); err != nil {
			return fmt.Errorf("give the task its output: %w", err)
		}
	}
	return nil
}
