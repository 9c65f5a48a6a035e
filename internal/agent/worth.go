package agent

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// worthFile, in an attempt's directory, has the attempt's worth. An agent that restarts without a
// network reads it from there.
const worthFile = "worth.json"

// worth is the input of policies for a task: its importance on the node, and its owner.
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
		Class: a.spec.Worth().String(), Priority: a.spec.PriorityOnNode(), Owner: a.owner, Queue: a.queue,
		Labels: a.labels, Resources: a.spec.Resources,
	}
}

// readWorth returns nil if there is no readable note.
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

// note is a worth to be written into an attempt's directory.
type note struct {
	key   attemptKey
	worth *worth
}

// write is not durable: a machine that goes down takes the attempt with it.
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

// recordWorth records the worth of a life's live attempts as soon as an assignment has it, and adds
// notes.
func (l *ledger) recordWorth(name string) {
	w, wanted := l.wanted(name)
	for _, e := range l.mu.entries[name] {
		if e.phase != phaseLive || e.noted {
			continue
		}
		if e.worth == nil && wanted && w.attempt == e.attempt {
			e.worth = w.worth()
		}
		if e.worth != nil {
			e.noted = true
			l.mu.notes = append(l.mu.notes, note{attemptKey{name, e.attempt}, e.worth})
		}
	}
}

// takeNotes returns the notes that were added since the last call.
func (l *ledger) takeNotes() []note {
	l.mu.Lock()
	defer l.mu.Unlock()
	notes := l.mu.notes
	l.mu.notes = nil
	return notes
}

// liveTaskCache is the last result of liveTasks. The slice is never changed.
type liveTaskCache struct {
	version uint64 // version of the ledger at that time
	list    []nodeqos.Task
	names   []string // the local names in list
}

// hadOther reports whether the list has the attempt of another life.
func (c *liveTaskCache) hadOther(t *nodeqos.Task, name string) bool {
	i, had := slices.BinarySearchFunc(c.list, *t, compareTasks)
	return had && c.names[i] != name
}

func compareTasks(a, b nodeqos.Task) int {
	return cmp.Or(strings.Compare(a.ID, b.ID), cmp.Compare(a.Attempt, b.Attempt))
}

// liveTasks returns the live attempts of this node, in the order of their tasks. The caller must
// not change them. It is called every second, and costs nothing between changes.
//
// The QoS loop knows attempts by their ids and numbers. It must not take the attempt of a later
// life for one that it has just seen. So the first list leaves the later one out.
func (l *ledger) liveTasks() []nodeqos.Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.tasks.list != nil && l.mu.tasks.version == l.mu.version {
		return l.mu.tasks.list
	}
	// Most attempts have ended, and are only kept; so the live ones alone are sorted.
	next := liveTaskCache{version: l.mu.version, list: []nodeqos.Task{}}
	names := map[qos.Key]string{}
	for name, entries := range l.mu.entries {
		for _, e := range entries {
			if e.phase != phaseLive {
				continue
			}
			t := e.qosTask(name)
			if l.mu.tasks.hadOther(&t, name) {
				next.version-- // the next call has it
				continue
			}
			next.list = append(next.list, t)
			names[t.Key()] = name
		}
	}
	slices.SortFunc(next.list, compareTasks)
	for i := range next.list {
		next.names = append(next.names, names[next.list[i].Key()])
	}
	l.mu.tasks = next
	return next.list
}

// unknownQueue is the queue of an attempt without known worth. No real queue can have that name, so
// that unknownTaskPolicy matches only such attempts.
const unknownQueue = "?"

// unknownTaskPolicy prevents actions on attempts without known worth, whatever other policies say.
func unknownTaskPolicy() plimsoll.Policy {
	return plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{
		Name: "tasks of unknown worth", Critical: true,
		Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeQueue, Values: []string{unknownQueue}}},
	}}
}

// qosTask returns an attempt in the loop's form. Without known worth it ranks highest, and has no
// control group: the loop could not tell reduced limits from original ones.
func (e *entry) qosTask(name string) nodeqos.Task {
	t := nodeqos.Task{
		ID: executor.TaskOf(name), Attempt: e.attempt, Class: plimsoll.ClassGuaranteed,
		Priority: math.MaxInt32, Queue: unknownQueue,
		Started:  e.started,
		Stopping: e.stopping || e.ending || e.void,
	}
	if w := e.worth; w != nil {
		t.Group = executor.CgroupName(name, e.attempt)
		t.Class, _ = plimsoll.ParseClass(w.Class) // it was validated when it was read
		t.Priority, t.Owner, t.Queue, t.Labels, t.Resources = w.Priority, w.Owner, w.Queue, w.Labels, w.Resources
	}
	return t
}
