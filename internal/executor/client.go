package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Bounds on starting a supervisor.
const (
	defaultStartTimeout = 20 * time.Second
	connectEvery        = 5 * time.Millisecond
	// A started supervisor may lose the lock to another that is just ending.
	maxStarts     = 3
	maxLogAtStart = 1 << 20 // a larger supervisor.log is set aside
	logTail       = 2 << 10
)

// ClientConfig says where the supervisor is, and how to start one.
type ClientConfig struct {
	Dir          string        // the agent's directory, absolute; needed
	Socket       string        // path of the supervisor's socket; empty: supervisor.sock in Dir
	Command      []string      // starts a supervisor for Dir and Socket; empty: one must be running
	Users        Users         // users of tasks, if the supervisor is root
	StartTimeout time.Duration // longest wait for the first answer; 0: 20 seconds
}

// Validate fills in defaults and reports the first field that is wrong.
func (c *ClientConfig) Validate() error {
	s := SupervisorConfig{Dir: c.Dir, Socket: c.Socket}
	if err := s.Validate(); err != nil {
		return err
	}
	if err := c.Users.Validate(); err != nil {
		return err
	}
	c.Socket = s.Socket
	if c.StartTimeout <= 0 {
		c.StartTimeout = defaultStartTimeout
	}
	return nil
}

// Client speaks to the supervisor of a directory. It is safe for concurrent use. After an error
// with CodeUnavailable the supervisor may be gone: call Connect again.
type Client struct {
	cfg  ClientConfig
	http *http.Client
	rpc  plimsollv1connect.SupervisorServiceClient
	caps Capabilities
}

// Connect connects to the supervisor of a directory. If none answers, it starts one, detached from
// this process.
func Connect(ctx context.Context, cfg ClientConfig) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	httpClient, url, err := transport.Client("unix:" + cfg.Socket)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, http: httpClient, rpc: plimsollv1connect.NewSupervisorServiceClient(httpClient, url)}
	if err := c.ensure(ctx); err != nil {
		c.Close()
		return nil, err
	}
	if _, err := readJSON(filepath.Join(cfg.Dir, supervisorFile), &c.caps); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection. The supervisor continues.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Capabilities returns the supervisor's capabilities at the time of Connect.
func (c *Client) Capabilities() Capabilities { return c.caps }

// OpenSubtree opens the node's control group that the supervisor has named; nil if tasks run
// without.
func (c *Capabilities) OpenSubtree() (*cgroup.Subtree, error) {
	if c.Cgroups == "" || c.Subtree == "" {
		return nil, nil
	}
	h, err := cgroup.Detect(c.CgroupRoot)
	if err != nil {
		return nil, fmt.Errorf("open the node's control group: %w", err)
	}
	return h.Subtree(c.Subtree)
}

// ensure returns when a supervisor answers.
func (c *Client) ensure(ctx context.Context) error {
	err := c.ping(ctx)
	if err == nil || len(c.cfg.Command) == 0 {
		return err
	}
	c.reapLast()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartTimeout)
	defer cancel()
	var started []*os.Process
	defer func() {
		for _, p := range started {
			_ = p.Release() // it is detached, or has ended; no error is possible
		}
	}()
	tick := time.NewTicker(connectEvery)
	defer tick.Stop()
	for ended := true; ; {
		// While the lock is held, a supervisor is starting or ending, and another could not start.
		held, err := lockHeld(filepath.Join(c.cfg.Dir, supervisorLock))
		if err != nil {
			return err
		}
		if ended && !held {
			if len(started) == maxStarts {
				return c.startFailed("ended at once")
			}
			process, err := c.startSupervisor()
			if err != nil {
				return err
			}
			started, ended = append(started, process), false
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return c.startFailed(fmt.Sprintf("did not answer in %v", c.cfg.StartTimeout))
		}
		if err := c.ping(ctx); err == nil {
			return c.endSurplus(started, ended)
		}
		if !ended {
			ended = reaped(started[len(started)-1].Pid)
		}
	}
}

// endSurplus ends the supervisor that was started last, unless it is the one that answers. A
// supervisor without the lock has done nothing yet, so it can be killed.
func (c *Client) endSurplus(started []*os.Process, ended bool) error {
	var winner Capabilities
	if _, err := readJSON(filepath.Join(c.cfg.Dir, supervisorFile), &winner); err != nil || ended || len(started) == 0 {
		return err
	}
	last := started[len(started)-1]
	if last.Pid == winner.PID {
		return nil
	}
	if err := last.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end a supervisor that came too late: %w", err)
	}
	if _, err := last.Wait(); err != nil && !errors.Is(err, syscall.ECHILD) {
		return fmt.Errorf("end a supervisor that came too late: %w", err)
	}
	return nil
}

func (c *Client) startFailed(what string) error {
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "the supervisor %v %s; its log %s ends with: %s",
		c.cfg.Command, what, filepath.Join(c.cfg.Dir, supervisorLog), c.tail())
}

// tail returns the end of the supervisor's log.
func (c *Client) tail() string {
	data, err := os.ReadFile(filepath.Join(c.cfg.Dir, supervisorLog))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data[max(0, len(data)-logTail):]))
}

// startSupervisor starts a supervisor in its own session, so that the end of this process does not
// end it.
func (c *Client) startSupervisor() (process *os.Process, err error) {
	if err := os.MkdirAll(c.cfg.Dir, passageMode); err != nil {
		return nil, fmt.Errorf("make the agent's directory: %w", err)
	}
	path := filepath.Join(c.cfg.Dir, supervisorLog)
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogAtStart {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, fmt.Errorf("set the supervisor's log aside: %w", err)
		}
	}
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the supervisor's log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.Command(c.cfg.Command[0], c.cfg.Command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = slices.DeleteFunc(os.Environ(), isSecret)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	return cmd.Process, nil
}

// isSecret reports whether a variable must be kept from the supervisor. The supervisor needs no
// token, and its environment can be read by others.
func isSecret(variable string) bool { return strings.HasPrefix(variable, "PLIMSOLL_TOKEN") }

// reaped reports whether a child of this process has ended, and removes it from the process table.
func reaped(pid int) bool {
	var ws syscall.WaitStatus
	got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
	return err == nil && got == pid
}

// reapLast removes the previous supervisor from the process table, if this process had started it
// and it has ended.
func (c *Client) reapLast() {
	var last Capabilities
	if ok, err := readJSON(filepath.Join(c.cfg.Dir, supervisorFile), &last); ok && err == nil && last.PID > 0 {
		reaped(last.PID)
	}
}

// ping returns nil if a supervisor answers, and CodeUnavailable if none does.
func (c *Client) ping(ctx context.Context) error {
	if _, err := os.Stat(c.cfg.Socket); errors.Is(err, fs.ErrNotExist) {
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "no supervisor runs for %s", c.cfg.Dir)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.WatchAttempts(ctx, connect.NewRequest(&pb.WatchAttemptsRequest{}))
	if err != nil {
		return wire.FromConnectError(err)
	}
	answered := stream.Receive()
	err = stream.Err()
	cancel()
	_ = stream.Close() // canceled here: no further message is expected
	if answered {
		return nil
	}
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "the supervisor does not answer on %s: %v", c.cfg.Socket, err)
}

// Start starts an attempt and returns when its process runs or could not be started. In the second
// case the status has ended, with the reason. An attempt is started only once: a later call returns
// its present status.
func (c *Client) Start(ctx context.Context, req StartRequest) (Status, error) {
	m := &pb.StartAttemptRequest{
		Task: req.Task, Id: req.ID, Attempt: req.Attempt, Job: req.Job, Node: req.Node,
		Spec: wire.GroupSpecToProto(&req.Spec),
		Dir:  AttemptDir(c.cfg.Dir, req.Task, req.Attempt), Owner: req.Owner, Users: c.cfg.Users.toProto(),
		Pids: req.Pids, TasksMemory: req.TasksMemory,
	}
	if !req.NoCgroup {
		m.Cgroup = CgroupName(req.Task, req.Attempt)
	}
	res, err := c.rpc.StartAttempt(ctx, connect.NewRequest(m))
	if err != nil {
		return Status{}, wire.FromConnectError(err)
	}
	return statusFromProto(res.Msg.GetStatus()), nil
}

// StopRequest asks for the end of an attempt.
type StopRequest struct {
	Task    string // its local name
	Attempt int32
	Grace   time.Duration       // between SIGTERM and SIGKILL; 0: the spec's killGrace
	Result  plimsoll.TaskResult // the attempt's result: killed, evicted, preempted …
	Message string
}

// Stop begins to stop an attempt and returns at once; Watch reports the end. An ended attempt stays
// as it is; an unknown one is CodeNotFound.
func (c *Client) Stop(ctx context.Context, req StopRequest) error {
	_, err := c.rpc.StopAttempt(ctx, connect.NewRequest(&pb.StopAttemptRequest{
		Task: req.Task, Attempt: req.Attempt, GraceNanos: int64(req.Grace), Result: pb.TaskResult(req.Result),
		Message: req.Message,
	}))
	return wire.FromConnectError(err)
}

// Forget drops an attempt that has ended, so that Watch does not report it again. Its directory
// stays.
func (c *Client) Forget(ctx context.Context, task string, attempt int32) error {
	_, err := c.rpc.ForgetAttempt(ctx, connect.NewRequest(&pb.ForgetAttemptRequest{Task: task, Attempt: attempt}))
	return wire.FromConnectError(err)
}

// Watch calls changed with all attempts of the supervisor, then with each change. snapshotEnd is
// true once, after the last attempt of the first round. Of several changes of one attempt, perhaps
// only the last is reported. Watch returns the error of changed, or an error when the stream ends.
func (c *Client) Watch(ctx context.Context, changed func(attempts []Status, snapshotEnd bool) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.WatchAttempts(ctx, connect.NewRequest(&pb.WatchAttemptsRequest{}))
	if err != nil {
		return wire.FromConnectError(err)
	}
	for stream.Receive() {
		m := stream.Msg()
		all := make([]Status, len(m.GetAttempts()))
		for i, a := range m.GetAttempts() {
			all[i] = statusFromProto(a)
		}
		if err := changed(all, m.GetSnapshotEnd()); err != nil {
			cancel()
			_ = stream.Close() // canceled here
			return err
		}
	}
	err = stream.Err()
	if err == nil {
		err = plimsoll.Errorf(plimsoll.CodeUnavailable, "the supervisor has ended the watch; connect again")
	}
	return errors.Join(wire.FromConnectError(err), stream.Close())
}
