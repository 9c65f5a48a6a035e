package agent

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// able is a supervisor with settable capabilities.
type able struct {
	*supervisor
	caps executor.Capabilities
}

// Capabilities implements Executor.
func (s *able) Capabilities() executor.Capabilities { return s.caps }

// An agent registers its node's number of tasks. Each start has the process limit of the task and
// the memory limit of all tasks. Without flags these are the defaults.
func TestAgentBoundsItsTasks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		most   int32
		pids   int64
	}{
		"defaults": {func(*Config) {}, 256, 4096},
		"flags":    {func(cfg *Config) { cfg.Facts.MaxTasks, cfg.TaskPids = 7, 99 }, 7, 99},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config()
			c.change(&cfg)
			w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
			w.run(cfg)
			w.await("it runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
			w.cluster.look(func() {
				if got := w.cluster.node.Facts.MaxTasks; got != c.most {
					t.Errorf("the node takes %d tasks, want %d", got, c.most)
				}
			})
			w.super.look(func() {
				if s := w.super.asked[0]; s.Pids != c.pids || s.TasksMemory <= 0 {
					t.Errorf(
						"the task may have %d processes, want %d; all may use %d bytes", s.Pids, c.pids, s.TasksMemory,
					)
				}
			})
		})
	}
}

// The memory limit of all tasks is the offered memory without the reserve, and less than the
// machine has.
func TestTasksMemory(t *testing.T) {
	const gib = int64(1) << 30
	for _, c := range []struct {
		measured, offered int64
		reserve           float64
		want              int64
	}{
		{measured: 100 * gib, offered: 100 * gib, want: 100*gib - 512<<20},
		{measured: 2 * gib, offered: 2 * gib, want: 2*gib - 2*gib/20},
		{measured: 100 * gib, offered: 100 * gib, reserve: 0.15, want: 85 * gib},
		{measured: 100 * gib, offered: 10 * gib, want: 10 * gib},
		{measured: 2 * gib, offered: 64 * gib, want: 2*gib - 2*gib/20},
	} {
		if got := tasksMemory(c.measured, c.offered, c.reserve); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// An agent that cannot measure disk usage says so when it starts, and in its node's attributes.
func TestNodeThatCannotMeasureItsDiskSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		disk, attribute, says string
	}{
		"measured": {executor.DiskMeasured, "", ""},
		"no blocks": {
			"the file system does not say", DiskNotMeasured, "not measured: the file system does not say",
		},
		"older supervisor": {"", DiskNotMeasured, "not measured: the supervisor is of an older version"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.executor = &able{w.super, executor.Capabilities{Cgroups: "v2", Disk: c.disk}}
			w.run(w.config())
			w.await("the node", func() bool { return w.cluster.node.ID != "" })
			w.cluster.look(func() {
				if got := w.cluster.node.Attributes["disk"]; got != c.attribute {
					t.Errorf("the node's attribute disk is %q, want %q", got, c.attribute)
				}
			})
			if log := w.log.String(); !strings.Contains(log, c.says) ||
				c.says == "" && strings.Contains(log, "limited") {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
}
