package replica

import (
	"bytes"
	"iter"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The names of the indexes.
const (
	indexNode  = "node"
	indexState = "state"
	indexOwner = "owner"
	indexQueue = "queue"
)

// criteria are the indexes of each kind. They hold keys only, and their values are read from the
// encoded record.
var criteria = [wire.NumKinds][]informer.Index[record]{
	wire.KindTask: {
		{Name: indexNode, Values: nodeOfTask},
		{Name: indexState, Values: stateOfTask},
	},
	wire.KindJobStatus: {
		{Name: indexQueue, Values: queuesOfJob},
		{Name: indexOwner, Values: ownerOfJob},
		{Name: indexState, Values: stateOfJob},
	},
}

// unreadable is the index value of a record that cannot be read. Every choice of records contains
// these, so that a list reports them as a list of all records would.
const unreadable = "\xff"

// taskValues are the values of the index of tasks by state and result. All states on a node are one
// group: a task passes through them quickly but for Running, and each move costs two searches.
var taskValues = func() (values [plimsoll.NumTaskStates][plimsoll.NumTaskResults]string) {
	for state := range values {
		group := plimsoll.TaskState(state).String()
		if plimsoll.TaskState(state).OnNode() {
			group = "on node"
		}
		for result := range values[state] {
			values[state][result] = group + "/" + plimsoll.TaskResult(result).String()
		}
	}
	return values
}()

// jobValues are the values of the index of jobs by state.
var jobValues = func() (values [plimsoll.NumJobStates]string) {
	for state := range values {
		group := "live/"
		if plimsoll.JobState(state).Ended() {
			group = "ended/"
		}
		values[state] = group + plimsoll.JobState(state).String()
	}
	return values
}()

func nodeOfTask(r record, to []string) ([]string, error) {
	if r.node == (nodeName{}) {
		return to, nil
	}
	return append(to, r.node.String()), nil
}

func stateOfTask(r record, to []string) ([]string, error) {
	state, result, ok := wire.PeekTask(r.value)
	if !ok {
		return append(to, unreadable), nil
	}
	return append(to, taskValues[state][result]), nil
}

// queuesOfJob appends the job's queue and those above it but the root, which all jobs are in.
func queuesOfJob(r record, to []string) ([]string, error) {
	_, queue, _, ok := wire.PeekJob(r.value)
	if !ok {
		return append(to, unreadable), nil
	}
	path := string(queue)
	for i := bytes.IndexByte(queue, '.') + 1; i > 0 && i <= len(path); {
		next := bytes.IndexByte(queue[i:], '.')
		if next < 0 {
			return append(to, path), nil
		}
		i += next
		to = append(to, path[:i])
		i++
	}
	return to, nil
}

func ownerOfJob(r record, to []string) ([]string, error) {
	owner, _, _, ok := wire.PeekJob(r.value)
	if !ok {
		return append(to, unreadable), nil
	}
	return append(to, string(owner)), nil
}

func stateOfJob(r record, to []string) ([]string, error) {
	_, _, state, ok := wire.PeekJob(r.value)
	if !ok {
		return append(to, unreadable), nil
	}
	return append(to, jobValues[state]), nil
}

// TaskCriteria chooses tasks. Its zero value chooses all.
type TaskCriteria struct {
	Job     string
	Node    string // that the task is bound to
	States  []plimsoll.TaskState
	Results []plimsoll.TaskResult
}

// JobCriteria chooses jobs. Its zero value chooses all.
type JobCriteria struct {
	Queue  string // and all queues below it
	Owner  string
	States []plimsoll.JobState
}

// Tasks yields, in key order, the records of a range that contains every task that meets all
// criteria, and starts behind the key after. The caller checks each record: the range is that of
// the criterion that leaves the fewest.
func (s *Snapshot) Tasks(want TaskCriteria, after string) iter.Seq2[string, []byte] {
	best := choice{kind: wire.KindTask, after: after, count: s.Len(wire.KindTask)}
	if want.Job != "" {
		best.prefix = wire.TaskKeyPrefix(want.Job)
	}
	if want.Node != "" {
		best.offer(s, indexNode, want.Node)
	}
	if len(want.States) > 0 || len(want.Results) > 0 {
		best.offer(s, indexState, taskValuesOf(want)...)
	}
	return s.chosen(&best)
}

// NodeTasks yields the keys and records of the tasks that are bound to a node, in key order.
func (s *Snapshot) NodeTasks(node string) iter.Seq2[string, []byte] {
	return s.chosen(&choice{kind: wire.KindTask, index: indexNode, values: []string{node}})
}

// Jobs yields, in key order, the statuses of a range that contains every job that meets all
// criteria, and starts behind the key after. The caller checks each record, as with Tasks.
func (s *Snapshot) Jobs(want JobCriteria, after string) iter.Seq2[string, []byte] {
	best := choice{kind: wire.KindJobStatus, after: after, count: s.Len(wire.KindJobStatus)}
	if bytes.IndexByte([]byte(want.Queue), '.') >= 0 {
		best.offer(s, indexQueue, want.Queue, unreadable)
	}
	if want.Owner != "" {
		best.offer(s, indexOwner, want.Owner, unreadable)
	}
	if len(want.States) > 0 {
		values := []string{unreadable}
		for _, state := range want.States {
			if int(state) < len(jobValues) {
				values = append(values, jobValues[state])
			}
		}
		best.offer(s, indexState, values...)
	}
	return s.chosen(&best)
}

// JobsIn returns the number of jobs of a queue and those below it. The root queue is not counted:
// it is 0.
func (s *Snapshot) JobsIn(queue string) int {
	n, err := s.kinds[wire.KindJobStatus].CountByIndex(indexQueue, queue)
	if err != nil {
		return 0 // no such index
	}
	return n
}

// taskValuesOf returns the index values of the tasks that have one of the states and one of the
// results, each once.
func taskValuesOf(want TaskCriteria) []string {
	states, results := want.States, want.Results
	if len(states) == 0 {
		for state := range taskValues {
			states = append(states, plimsoll.TaskState(state))
		}
	}
	if len(results) == 0 {
		for result := range taskValues[0] {
			results = append(results, plimsoll.TaskResult(result))
		}
	}
	values := []string{unreadable}
	for _, state := range states {
		for _, result := range results {
			if int(state) < len(taskValues) && int(result) < len(taskValues[0]) {
				values = append(values, taskValues[state][result])
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// choice is a range of records: those of a kind, or those that an index has under any of the
// values.
type choice struct {
	kind          wire.Kind
	prefix, after string
	index         string // empty: no index
	values        []string
	count         int // of the records of the index, or of the kind
}

// offer takes the range of an index if it has fewer records.
func (c *choice) offer(s *Snapshot, index string, values ...string) {
	count := 0
	for _, value := range values {
		n, err := s.kinds[c.kind].CountByIndex(index, value)
		if err != nil {
			return // no such index
		}
		count += n
	}
	if count < c.count {
		c.index, c.values, c.count = index, values, count
	}
}

func (s *Snapshot) chosen(c *choice) iter.Seq2[string, []byte] {
	if c.index == "" {
		return s.Scan(c.kind, c.prefix, c.after)
	}
	records, err := s.kinds[c.kind].IndexRange(c.index, c.prefix, c.after, c.values...)
	if err != nil {
		return s.Scan(c.kind, c.prefix, c.after) // no such index
	}
	return values(records)
}
