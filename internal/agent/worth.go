package agent

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// worthFile is in an attempt's directory: what policies go by. An agent that is restarted while the
// network is away has it from there.
const worthFile = "worth.json"

// worth is what policies go by: how much a task counts on its node, and whose it is.
type worth struct {
	Class     string             `json:"class"`
	Priority  int32              `json:"priority,omitempty"`
	Owner     string             `json:"owner,omitempty"`
	Queue     string             `json:"queue,omitempty"`
	Labels    map[string]string  `json:"labels,omitempty"`
	Resources plimsoll.Resources `json:"resources,omitempty"`
}

func (a *assignment) worth() *worth {
	return &worth{
		Class: a.spec.Worth().String(), Priority: a.spec.Priority, Owner: a.owner, Queue: a.queue, Labels: a.labels,
		Resources: a.spec.Resources,
	}
}

// readWorth returns nil if nothing was noted, or what was is torn.
func readWorth(dir string) *worth {
	data, err := os.ReadFile(filepath.Join(dir, worthFile))
	if err != nil {
		return nil
	}
	var w worth
	if err := json.Unmarshal(data, &w); err != nil {
		return nil
	}
	if _, ok := plimsoll.ParseClass(w.Class); !ok {
		return nil
	}
	return &w
}

// note is what is to be written into an attempt's directory.
type note struct {
	key   attemptKey
	worth *worth
}

// write need not be durable: a machine that goes down takes the attempt with it.
func (n *note) write(dir string) error {
	data, err := json.Marshal(n.worth)
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, worthFile+".new")
	if err := os.WriteFile(temp, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, worthFile))
}

// appraise takes in what the attempts of a task that live are worth, as soon as an assignment
// tells, and has it noted.
func (l *ledger) appraise(task string) {
	w, wanted := l.mu.wanted[task]
	for _, e := range l.mu.entries[task] {
		if e.phase != phaseLive || e.noted {
			continue
		}
		if e.worth == nil && wanted && w.attempt == e.attempt {
			e.worth = w.worth()
		}
		if e.worth != nil {
			e.noted = true
			l.mu.notes = append(l.mu.notes, note{attemptKey{task, e.attempt}, e.worth})
		}
	}
}

// takeNotes returns what is to be written since the last call.
func (l *ledger) takeNotes() []note {
	l.mu.Lock()
	defer l.mu.Unlock()
	notes := l.mu.notes
	l.mu.notes = nil
	return notes
}

// residents is what residents answered last. The slice is never changed after that.
type residents struct {
	version uint64 // of the ledger, when it was made
	list    []nodeqos.Task
}

// residents returns the attempts that live on this node, in the order of their tasks. The caller
// must not change them. It is asked every second, and costs nothing while nothing has changed.
func (l *ledger) residents() []nodeqos.Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.tasks.list != nil && l.mu.tasks.version == l.mu.version {
		return l.mu.tasks.list
	}
	list := make([]nodeqos.Task, 0, len(l.mu.entries))
	for _, task := range sortedKeys(l.mu.entries) {
		for _, e := range l.mu.entries[task] {
			if e.phase == phaseLive {
				list = append(list, e.resident(task))
			}
		}
	}
	l.mu.tasks = residents{l.mu.version, list}
	return list
}

// unknownQueue is the queue of an attempt of which nothing is known yet. No queue can have that
// name, so that sparing reaches these only.
const unknownQueue = "?"

// sparing keeps attempts of which nothing is known yet from being acted on, whatever other policies
// say.
func sparing() plimsoll.Policy {
	return plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{
		Name: "what is not known yet", Critical: true,
		Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeQueue, Values: []string{unknownQueue}}},
	}}
}

// resident is an attempt as the loop sees it. As long as nothing is known of it, it is worth the
// most, and its control group is not told: the loop could not tell what was taken from it from what
// it never had.
func (e *entry) resident(task string) nodeqos.Task {
	t := nodeqos.Task{
		ID: task, Attempt: e.attempt, Class: plimsoll.ClassGuaranteed, Priority: math.MaxInt32, Queue: unknownQueue,
		Started:  e.started,
		Stopping: e.stopping || e.ending || e.void,
	}
	if w := e.worth; w != nil {
		t.Group = executor.CgroupName(task, e.attempt)
		t.Class, _ = plimsoll.ParseClass(w.Class) // it was checked when it was read
		t.Priority, t.Owner, t.Queue, t.Labels, t.Resources = w.Priority, w.Owner, w.Queue, w.Labels, w.Resources
	}
	return t
}
