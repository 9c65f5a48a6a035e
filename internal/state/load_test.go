package state_test

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// stored returns a store with a job "j" of two tasks, one on node "n".
type stored struct {
	queues   plimsoll.QueueConfig
	specs    []plimsoll.JobSpec
	statuses []plimsoll.JobStatus
	tasks    []plimsoll.Task
	nodes    []plimsoll.Node
}

func sound() *stored {
	return &stored{
		queues: plimsoll.DefaultQueues(),
		specs: []plimsoll.JobSpec{{ID: "j", Queue: "root.default", Groups: []plimsoll.GroupSpec{
			{Name: "g", Count: 2, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 100}},
		}}},
		statuses: []plimsoll.JobStatus{
			{ID: "j", Queue: "root.default", State: plimsoll.JobRunning, Submitted: 1, Started: 2},
		},
		tasks: []plimsoll.Task{
			{Job: "j", Group: "g", Index: 0, State: plimsoll.TaskRunning, Attempt: 1, Node: "n"},
			{Job: "j", Group: "g", Index: 1, State: plimsoll.TaskPending},
		},
		nodes: []plimsoll.Node{
			{
				ID: "n", Mode: plimsoll.NodeActive, Ready: true, Incarnation: 1,
				Capacity: plimsoll.Resources{"cpu": 1000},
			},
		},
	}
}

func (r *stored) load() (*state.State, error) {
	l := state.NewLoader(state.Config{}, plimsoll.DefaultQueues())
	l.QueueConfig(r.queues)
	for _, spec := range r.specs {
		l.JobSpec(spec)
	}
	for _, st := range r.statuses {
		l.JobStatus(st)
	}
	for _, task := range r.tasks {
		l.Task(task)
	}
	for _, n := range r.nodes {
		l.Node(n)
	}
	return l.End(1000)
}

func TestSoundRecordsLoad(t *testing.T) {
	s, err := sound().load()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if c := s.Job("j").Groups[0].Counts; c != (plimsoll.TaskCounts{Pending: 1, Running: 1}) {
		t.Fatalf("counts %+v", c)
	}
}

// Records that contradict each other are refused with CodeCorrupt and a text that names the record.
// The load never panics.
func TestCorruptRecordsAreRefused(t *testing.T) {
	huge := plimsoll.Resources{}
	for _, c := range "abcdefghijklmnopqrst" {
		huge[string(c)] = 1
	}
	for _, test := range []struct {
		name  string
		spoil func(*stored)
		want  string
	}{
		{"a status without its specification", func(r *stored) { r.specs = nil }, `status of job "j" but not its spec`},
		{
			"a specification without its status", func(r *stored) { r.statuses, r.tasks = nil, nil },
			`specification of job "j" but not its status`,
		},
		{"tasks alone", func(r *stored) { r.statuses, r.specs, r.nodes = nil, nil, nil }, "task j.g.0 but not its job"},
		{
			"two statuses of a job", func(r *stored) { r.statuses = append(r.statuses, r.statuses[0]) },
			`status of job "j" twice`,
		},
		{"an unknown job state", func(r *stored) { r.statuses[0].State = 99 }, "unknown state (99)"},
		{"no job state", func(r *stored) { r.statuses[0].State = 0 }, "unknown state (0)"},
		{
			"a task of an unknown group", func(r *stored) { r.tasks[1].Group = "x" },
			"task j.x.1 but not its job or group",
		},
		{"a task without its node", func(r *stored) { r.nodes = nil }, `task j.g.0 on node "n", but not the node`},
		{"a task on no node", func(r *stored) { r.tasks[0].Node = "" }, `task j.g.0 on node ""`},
		{"a missing task", func(r *stored) { r.tasks = r.tasks[1:] }, "task j.g.1 but not the one before it, j.g.0"},
		{"a task twice", func(r *stored) { r.tasks[1].Index = 0 }, "task j.g.0 twice"},
		{
			"a negative index", func(r *stored) { r.tasks[0].Index = -1 },
			"task j.g.-1 twice, or with an impossible index",
		},
		{"an absurd index", func(r *stored) { r.tasks[1].Index = 1<<31 - 1 }, "but not the one before it"},
		{"an absurd index of an ended job", func(r *stored) {
			r.statuses[0].State = plimsoll.JobCompleted
			r.tasks = []plimsoll.Task{{Job: "j", Group: "g", Index: 1<<31 - 1, State: plimsoll.TaskFinished}}
		}, "but not the one before it"},
		{"an unknown task state", func(r *stored) { r.tasks[0].State = 77 }, "task j.g.0 in an unknown state (77)"},
		{"no task state", func(r *stored) { r.tasks[0].State = 0 }, "unknown state (0)"},
		{
			"a running task of an ended job", func(r *stored) { r.statuses[0].State = plimsoll.JobFailed },
			"task j.g.0, which is Running, of a job that is Failed",
		},
		{
			"a running task of a job that is being submitted",
			func(r *stored) { r.statuses[0].State = plimsoll.JobNew }, "of a job that is New",
		},
		{"a job in no queue", func(r *stored) { r.statuses[0].Queue = "" }, `job "j" in queue ""`},
		{
			"a job in a queue that is not there", func(r *stored) { r.statuses[0].Queue = "root.nope" },
			`in queue "root.nope"`,
		},
		{"a job in a parent", func(r *stored) { r.statuses[0].Queue = "root" }, "not a leaf"},
		{
			"a group twice", func(r *stored) { r.specs[0].Groups = append(r.specs[0].Groups, r.specs[0].Groups[0]) },
			"stands twice",
		},
		{"an absurd count", func(r *stored) { r.specs[0].Groups[0].Count = 1<<31 - 1 }, "the count 2147483647"},
		{"a negative count", func(r *stored) { r.specs[0].Groups[0].Count = -1 }, "the count -1"},
		{
			"a negative amount", func(r *stored) { r.specs[0].Groups[0].Resources = plimsoll.Resources{"cpu": -1} },
			"is negative",
		},
		{
			"too many resource names of a job", func(r *stored) { r.specs[0].Groups[0].Resources = huge },
			"at most 16 are possible",
		},
		{
			"too many resource names of a node", func(r *stored) { r.nodes[0].Capacity = huge },
			"node n, which cannot be used",
		},
		{"too many resource names of queues", func(r *stored) {
			for i, name := range huge.Names() {
				q := plimsoll.QueueConfig{Name: "d" + name, Draining: i%2 == 0, Max: plimsoll.Resources{name: 1}}
				r.queues.Queues = append(r.queues.Queues, q)
			}
		}, "configuration of the queues cannot be used"},
		{"a queue twice", func(r *stored) {
			r.queues.Queues = append(r.queues.Queues, plimsoll.QueueConfig{Name: "default", Draining: true})
		}, "stands twice"},
		{"another root", func(r *stored) { r.queues.Name = "top" }, "configuration of the queues cannot be used"},
		{"a node twice", func(r *stored) { r.nodes = append(r.nodes, r.nodes[0]) }, `node "n" twice`},
		{"a node in no mode", func(r *stored) { r.nodes[0].Mode = 0 }, "node n in an unknown mode (0)"},
		{
			"a negative capacity", func(r *stored) { r.nodes[0].Capacity = plimsoll.Resources{"cpu": -5} },
			"node n, which cannot be used",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := sound()
			test.spoil(r)
			_, err := r.load()
			if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt || err == nil {
				t.Fatalf("%v is not a CodeCorrupt error", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q does not say %q", err, test.want)
			}
		})
	}
}

// An ended job is kept though its queue is gone. The same holds for a job that is being forgotten.
func TestEndedJobOutlivesItsQueue(t *testing.T) {
	for _, end := range []plimsoll.JobState{plimsoll.JobCompleted, plimsoll.JobExpired} {
		r := sound()
		r.statuses[0].State, r.statuses[0].Queue = end, "root.gone"
		r.tasks[0].State, r.tasks[1].State = plimsoll.TaskFinished, plimsoll.TaskFinished
		s, err := r.load()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if q := s.JobStatus(s.Job("j")).Queue; q != "root.gone" || s.Queue(q) != nil {
			t.Fatalf("the queue is %q", q)
		}
	}
}
