package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// supervisor is an Executor without processes. It outlives an agent.
type supervisor struct {
	*watched

	dir      string // the agent's directory
	attempts map[attemptKey]*executor.Status
	log      []attemptKey // every change
	starts   map[attemptKey]int
	asked    []Start // every call
	stops    []Stop
	cut      int
	failing  error // of Start, Stop and Retire
	retired  bool
}

func newSupervisor(dir string) *supervisor {
	return &supervisor{
		watched: newWatched(), dir: dir, attempts: map[attemptKey]*executor.Status{},
		starts: map[attemptKey]int{},
	}
}

func (s *supervisor) put(a executor.Status) {
	s.attempts[attemptKey{a.Task, a.Attempt}] = &a
	s.log = append(s.log, attemptKey{a.Task, a.Attempt})
}

// finish ends an attempt.
func (s *supervisor) finish(task string, attempt int32, result plimsoll.TaskResult, code int32) {
	s.change(func() {
		a := *s.attempts[attemptKey{task, attempt}]
		a.State, a.Result, a.ExitCode, a.Finished = plimsoll.TaskFinished, result, code, time.Now().UnixNano()
		s.put(a)
	})
}

func (s *supervisor) Watch(ctx context.Context, each func([]executor.Status, bool) error) error {
	s.mu.Lock()
	cut, at := s.cut, len(s.log)
	var all []executor.Status
	for _, a := range s.attempts {
		all = append(all, *a)
	}
	s.mu.Unlock()
	if err := each(all, true); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		changed := s.changed
		var news []executor.Status
		for ; at < len(s.log); at++ {
			if a := s.attempts[s.log[at]]; a != nil {
				news = append(news, *a)
			}
		}
		gone := s.cut != cut
		s.mu.Unlock()
		if gone {
			return plimsoll.Errorf(plimsoll.CodeUnavailable, "the supervisor is away")
		}
		if err := each(news, false); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (s *supervisor) Start(_ context.Context, start Start) (result executor.Status, err error) {
	s.change(func() {
		key := attemptKey{start.Task, start.Attempt}
		s.asked = append(s.asked, start)
		if err = s.failing; err != nil {
			return
		}
		if a := s.attempts[key]; a != nil {
			result = *a
			return
		}
		dir := filepath.Join(s.dir, "tasks", start.Task, strconv.Itoa(int(start.Attempt)))
		if err = os.MkdirAll(filepath.Join(filepath.Dir(dir), workDir), 0o755); err != nil {
			return
		}
		if err = os.Mkdir(dir, 0o755); os.IsExist(err) {
			err = plimsoll.Errorf(plimsoll.CodeAlreadyExists, "%s is there", dir)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "stdout"), []byte("hello from "+start.Task+"\n"), 0o644)
		}
		if err != nil {
			return
		}
		s.starts[key]++
		result = executor.Status{
			Task: start.Task, Attempt: start.Attempt, State: plimsoll.TaskRunning, Started: time.Now().UnixNano(),
		}
		s.put(result)
	})
	return result, err
}

func (s *supervisor) Stop(_ context.Context, stop Stop) (err error) {
	s.change(func() {
		if err = s.failing; err != nil {
			return
		}
		s.stops = append(s.stops, stop)
		a := s.attempts[attemptKey{stop.Task, stop.Attempt}]
		if a == nil {
			err = plimsoll.Errorf(plimsoll.CodeNotFound, "not held")
		} else if a.State != plimsoll.TaskFinished {
			ended := *a
			ended.State, ended.Result, ended.Message = plimsoll.TaskFinished, stop.Result, stop.Message
			ended.ExitCode, ended.Finished = 143, time.Now().UnixNano()
			s.put(ended)
		}
	})
	return err
}

func (s *supervisor) Capabilities() executor.Capabilities {
	return executor.Capabilities{Limits: "this supervisor runs no processes"}
}

func (s *supervisor) Forget(_ context.Context, task string, attempt int32) (err error) {
	s.change(func() {
		if key := (attemptKey{task, attempt}); s.attempts[key] == nil {
			err = plimsoll.Errorf(plimsoll.CodeNotFound, "not held")
		} else {
			delete(s.attempts, key)
		}
	})
	return err
}

func (s *supervisor) Retire(context.Context) (running int, err error) {
	s.change(func() {
		if err = s.failing; err != nil {
			return
		}
		for _, a := range s.attempts {
			if a.State != plimsoll.TaskFinished {
				running++
			}
		}
		s.retired = running == 0
	})
	return running, err
}

func (s *supervisor) stopped(task string, attempt int32) bool {
	return slices.ContainsFunc(s.stops, func(stop Stop) bool { return stop.Task == task && stop.Attempt == attempt })
}
