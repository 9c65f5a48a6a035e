package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// sinceSynced calls f after the supervisor's first list, and ends the watch.
func sinceSynced(t *testing.T, s *Supervised, f func()) error {
	t.Helper()
	over := errors.New("over")
	err := s.Watch(t.Context(), func(_ []executor.Status, synced bool) error {
		if !synced {
			return nil
		}
		f()
		return over
	})
	if errors.Is(err, over) {
		return nil
	}
	return err
}

// outdate makes the supervisor of a directory look like an older version, which ignores users.
func outdate(t *testing.T, dir string) (pid int) {
	t.Helper()
	path := filepath.Join(dir, "supervisor.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var caps executor.Capabilities
	if err := json.Unmarshal(data, &caps); err != nil {
		t.Fatal(err)
	}
	caps.Users = false
	if data, err = json.Marshal(caps); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return caps.PID
}

// A supervisor outlives agents. One of an older version would run every task as root. So it gets no
// new tasks, and is replaced when its own have ended.
func TestASupervisorThatWouldRunTasksAsRootIsReplaced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only a supervisor that is root could")
	}
	w := newProcessWorld(t)
	s, ok := w.executor.(*Supervised)
	if !ok {
		t.Fatal("the world has another executor")
	}
	start := func(task, script string) (executor.Status, error) {
		return s.Start(
			t.Context(), Start{Task: task, Attempt: 1, Spec: plimsoll.GroupSpec{Command: []string{"sh", "-c", script}}},
		)
	}
	if err := sinceSynced(t, s, func() {
		if _, err := start("job.main.0", "sleep 1000"); err != nil {
			t.Fatal(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	pid := outdate(t, w.dir)
	if err := sinceSynced(t, s, func() {
		_, err := start("job.main.1", "exit 0")
		if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable ||
			!strings.Contains(err.Error(), "would run tasks as root") {
			t.Errorf("a start is answered with %v", err)
		}
		if err := s.Stop(
			t.Context(), Stop{Task: "job.main.0", Attempt: 1, Grace: 1, Result: plimsoll.ResultKilled},
		); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	// The old supervisor is ended when no task runs any more, and then another one starts.
	for replaced := false; !replaced; {
		err := sinceSynced(t, s, func() {
			data, err := os.ReadFile(filepath.Join(w.dir, "supervisor.json"))
			replaced = err == nil && !strings.Contains(string(data), `"pid": `+strconv.Itoa(pid)) &&
				strings.Contains(string(data), `"users": true`)
		})
		if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil && !errors.Is(err, syscall.ECHILD) {
		t.Error(err)
	}
}
