package agent

import (
	"context"
	"os"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// Supervised is an Executor over the supervisor process of a directory. It starts the process if
// none runs.
type Supervised struct {
	cfg executor.ClientConfig
	mu  struct {
		sync.Mutex
		client *executor.Client // nil: not connected
		caps   executor.Capabilities
	}
}

var _ Executor = (*Supervised)(nil)

// NewSupervised makes the Executor; it connects in Watch.
func NewSupervised(cfg executor.ClientConfig) (*Supervised, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Supervised{cfg: cfg}, nil
}

// Watch connects, starting a supervisor if none runs, and follows its attempts.
func (s *Supervised) Watch(ctx context.Context, each func(attempts []executor.Status, synced bool) error) error {
	client, err := executor.Connect(ctx, s.cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	if ignoresUsers(client) || !client.Capabilities().IDs {
		if err := s.retire(ctx, client); err == nil {
			return plimsoll.Errorf(
				plimsoll.CodeUnavailable, "the supervisor of an older version was ended; another takes its place",
			)
		}
	}
	s.use(client)
	defer s.use(nil)
	return client.Watch(ctx, each)
}

func (s *Supervised) use(client *executor.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.client = client
	if client != nil {
		s.mu.caps = client.Capabilities()
	}
}

// ignoresUsers reports whether a supervisor runs all tasks as root, whatever its requests say.
func ignoresUsers(client *executor.Client) bool {
	return os.Geteuid() == 0 && !client.Capabilities().Users
}

// retire ends a supervisor of an older version. While attempts run it stays, because their exit
// codes would be lost.
func (s *Supervised) retire(ctx context.Context, client *executor.Client) error {
	running, err := client.Retire(ctx)
	if err != nil {
		return err
	}
	if running > 0 {
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "the supervisor (process %d) is of an older version and would run tasks as root; new ones start when "+
			"the last of its %d has ended, or when you end it: tasks go on, but their exit codes are then not known", client.Capabilities().PID, running)
	}
	return nil
}

// Retire ends the supervisor if none of its attempts runs.
func (s *Supervised) Retire(ctx context.Context) (running int, err error) {
	cfg := s.cfg
	cfg.Command = nil // do not start a supervisor
	client, err := executor.Connect(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return client.Retire(ctx)
}

func (s *Supervised) client() (*executor.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.client == nil {
		return nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "not connected to the supervisor of %s", s.cfg.Dir)
	}
	return s.mu.client, nil
}

// Capabilities returns the supervisor's capabilities at the last connection.
func (s *Supervised) Capabilities() executor.Capabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.caps
}

// Start starts an attempt.
func (s *Supervised) Start(ctx context.Context, start Start) (executor.Status, error) {
	client, err := s.client()
	if err != nil {
		return executor.Status{}, err
	}
	if ignoresUsers(client) {
		if err := s.retire(ctx, client); err != nil {
			return executor.Status{}, err
		}
		return executor.Status{}, plimsoll.Errorf(
			plimsoll.CodeUnavailable, "the supervisor of an older version was ended; another takes its place",
		)
	}
	return client.Start(ctx, executor.StartRequest{
		Task: start.Task, ID: start.ID, Attempt: start.Attempt, Job: start.Job, Node: start.Node, Spec: start.Spec,
		NoCgroup: s.Capabilities().Cgroups == "",
		Owner:    start.Owner,
		Pids:     start.Pids, TasksMemory: start.TasksMemory,
	})
}

// Stop begins to stop an attempt.
func (s *Supervised) Stop(ctx context.Context, stop Stop) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	return client.Stop(ctx, executor.StopRequest{
		Task: stop.Task, Attempt: stop.Attempt, Grace: stop.Grace, Result: stop.Result, Message: stop.Message,
	})
}

// Forget drops an attempt that has ended.
func (s *Supervised) Forget(ctx context.Context, task string, attempt int32) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	return client.Forget(ctx, task, attempt)
}
