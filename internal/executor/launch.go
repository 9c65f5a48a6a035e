package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// launchers is the number of attempts that can start at once: enough for their disk syncs to share
// journal commits. Each needs a thread, because only the thread that forked a process can trace it.
const launchers = 4

// launch is a process to be started.
type launch struct {
	command *command
	thread  *thread    // the thread that starts the process
	files   []*os.File // stdin, stdout, stderr
	cgroup  *os.File   // v2 control group of the process; may be nil
	// record makes the process durably known. It is called before the program's first instruction.
	record func(pid int) error
	// exited is called once at the end of the process, if the launch succeeded.
	exited func(syscall.WaitStatus)
}

// launcher starts processes on threads of its own.
type launcher struct {
	reaper *reaper
	work   chan func(*thread) // run on a launcher thread
	asRoot chan func(*thread) // run on the launcher thread that is not confined
	done   chan struct{}
	traced bool // ptrace is permitted; set before the first launch
}

// thread is a launcher's thread.
type thread struct {
	masked bool // it has its own umask
}

// run serves launches on one thread until ctx ends. The thread ends with it, because no other
// goroutine may run there.
func (l *launcher) run(ctx context.Context, work chan func(*thread)) error {
	runtime.LockOSThread()
	t := &thread{masked: ownMask()}
	if work == l.work {
		if err := confine(); err != nil {
			return err
		}
	}
	for {
		select {
		case f := <-work:
			f(t)
		case <-ctx.Done():
			return nil
		}
	}
}

// do starts one process, on a launcher thread, and returns when it runs or cannot run.
func (l *launcher) do(start *launch) error {
	result := make(chan error, 1)
	f := func(t *thread) {
		start.thread = t
		if l.traced {
			result <- l.startTraced(start)
		} else {
			result <- l.startByShell(start)
		}
	}
	work := l.work
	if start.command.user.root() {
		work = l.asRoot
	}
	select {
	case work <- f:
		return <-result
	case <-l.done:
		return errStopping()
	}
}

func (l *launcher) fork(start *launch, path string, argv []string, files []*os.File, traced bool) (int, error) {
	attr := &syscall.ProcAttr{
		Dir: start.command.dir, Env: start.command.env,
		Sys: &syscall.SysProcAttr{Setsid: true, Ptrace: traced, Credential: start.command.user.cred},
	}
	if err := closeOnExec(); err != nil {
		return 0, err
	}
	if cred := start.command.user.cred; cred != nil && cred.Uid != 0 {
		if err := newKeyring(); err != nil {
			return 0, err
		}
	}
	if start.thread.masked {
		unix.Umask(start.command.user.mask())
	}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	if start.cgroup != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(start.cgroup.Fd())
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if errors.Is(err, syscall.ENOSYS) && start.cgroup != nil {
		attr.Sys.UseCgroupFD = false // no clone3 here: record puts the process in its group
		pid, err = syscall.ForkExec(path, argv, attr)
	}
	runtime.KeepAlive(files)
	runtime.KeepAlive(start.cgroup)
	return pid, err
}

// startTraced starts the program under ptrace, so that it stops right after exec. It must run on a
// launcher thread.
func (l *launcher) startTraced(start *launch) error {
	seq := l.reaper.begin()
	pid, err := l.fork(start, start.command.path, start.command.argv, start.files, true)
	if err != nil {
		l.reaper.end()
		return start.command.explain(err)
	}
	c := l.reaper.claim(pid, seq)
	l.reaper.end()
	ws, err := l.reaper.next(c)
	if err != nil {
		return l.abandon(pid, c, err)
	}
	if !ws.Stopped() {
		return cannotStart(
			"process %d ended before its first instruction (%v); its memory limit may be too small for the program",
			pid, describe(ws),
		)
	}
	if err := syscall.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err != nil {
		return l.abandon(pid, c, fmt.Errorf("tie the new process %d to this one: %w", pid, err))
	}
	if err := start.record(pid); err != nil {
		return l.abandon(pid, c, err)
	}
	if err := syscall.PtraceDetach(pid); err != nil {
		return l.abandon(pid, c, fmt.Errorf("let the new process %d run: %w", pid, err))
	}
	l.reaper.follow(c, start.exited)
	return nil
}

// waitScript reads the line "go" from descriptor 3 and then execs the program. If the supervisor
// dies first, the pipe ends and the shell exits.
const waitScript = `read -r go <&3 && [ "$go" = go ] || exit 125; exec "$@" 3<&-`

// startByShell starts the program through a shell with waitScript, where ptrace is not permitted.
func (l *launcher) startByShell(start *launch) (err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	argv := append([]string{"/bin/sh", "-c", waitScript, "sh", start.command.path}, start.command.argv[1:]...)
	seq := l.reaper.begin()
	pid, err := l.fork(start, "/bin/sh", argv, append(start.files[:len(start.files):len(start.files)], r), false)
	if closeErr := r.Close(); closeErr != nil && err == nil {
		err = closeErr
	}
	if err != nil {
		l.reaper.end()
		return start.command.explain(err)
	}
	c := l.reaper.claim(pid, seq)
	l.reaper.end()
	if err := start.record(pid); err != nil {
		return l.abandon(pid, c, err)
	}
	if _, err := io.WriteString(w, "go\n"); err != nil {
		return l.abandon(pid, c, fmt.Errorf("let the new process %d run: %w", pid, err))
	}
	l.reaper.follow(c, start.exited)
	return nil
}

// abandon kills a process that has not run yet, and waits for its end.
func (l *launcher) abandon(pid int, c *child, cause error) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return errors.Join(cause, fmt.Errorf("kill process %d: %w", pid, err))
	}
	for {
		ws, err := l.reaper.next(c)
		if err != nil {
			return errors.Join(cause, err)
		}
		if ws.Exited() || ws.Signaled() {
			return cause
		}
	}
}

// probe reports whether ptrace is permitted, with a process that is killed before its first
// instruction.
func (l *launcher) probe(t *thread) (reason error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	errProbe := errors.New("probe")
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	err = l.startTraced(&launch{
		command: &command{path: self, argv: []string{self}, dir: "/"}, thread: t, files: []*os.File{null, null, null},
		record: func(int) error { return errProbe },
	})
	if closeErr := null.Close(); closeErr != nil {
		return closeErr
	}
	if errors.Is(err, errProbe) {
		return nil
	}
	return err
}
