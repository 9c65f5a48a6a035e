package replica

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

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
	indexUID   = "uid"
	indexLabel = "label"
)

// leaving is a value of the index of uids, behind all uids: that of jobs which are to be deleted,
// or which have begun to leave the active store.
const leaving = "~"

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
		{Name: indexUID, Values: uidOfJob},
	},
	wire.KindJobSpec: {
		{Name: indexLabel, Values: labelsOfJob},
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

func uidOfJob(r record, to []string) ([]string, error) {
	uid, leaves, ok := wire.PeekLife(r.value)
	switch {
	case !ok:
		return append(to, unreadable), nil
	case leaves:
		to = append(to, leaving)
	}
	return append(to, uid), nil
}

// labelsOfJob appends the values of each label: of the key, and of the key with its value. Labels
// share values, so that the index stays small whatever users write into them.
func labelsOfJob(r record, to []string) ([]string, error) {
	for key, value := range wire.PeekLabels(r.value) {
		to = append(to, labelValue(key, nil), labelValue(key, value))
	}
	return to, nil
}

// labelValue returns the index value of a label; of its key if value is nil.
func labelValue(key, value []byte) string {
	sum := uint32(2166136261) // FNV-1a
	add := func(part []byte) {
		for _, b := range part {
			sum = (sum ^ uint32(b)) * 16777619
		}
	}
	add(key)
	if value != nil {
		add([]byte{'='})
		add(value)
	}
	sum ^= sum >> 16
	return string([]byte{byte(sum >> 8), byte(sum)})
}

// valueOfLabel is labelValue for a criterion: key, or key=value.
func valueOfLabel(label string) string {
	key, value, whole := strings.Cut(label, "=")
	if !whole {
		return labelValue([]byte(key), nil)
	}
	return labelValue([]byte(key), append([]byte{}, value...)) // not nil
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
	IDs    []string // one of these
	Queue  string   // and all queues below it
	Owner  string
	States []plimsoll.JobState
	Labels []string // all of these: key, or key=value
}

// Range is a part of the records of a kind that holds all which meet some criteria. It is that of
// the criterion that leaves the fewest. The caller checks each record.
type Range struct {
	snapshot *Snapshot
	choice   choice
}

// Len returns the number of records, or more for the tasks of a job.
func (r Range) Len() int { return r.choice.count }

// After yields the records in key order, behind the key after.
func (r Range) After(after string) iter.Seq2[string, []byte] {
	r.choice.after = after
	return r.snapshot.chosen(&r.choice)
}

// TaskRange returns a range that contains every task that meets all criteria.
func (s *Snapshot) TaskRange(want TaskCriteria) Range {
	best := choice{kind: wire.KindTask, count: s.Len(wire.KindTask)}
	if want.Job != "" {
		best.prefix = wire.TaskKeyPrefix(want.Job)
	}
	if want.Node != "" {
		best.offer(s, wire.KindTask, indexNode, want.Node)
	}
	if len(want.States) > 0 || len(want.Results) > 0 {
		best.offer(s, wire.KindTask, indexState, taskValuesOf(want)...)
	}
	return Range{s, best}
}

// Tasks yields the records of TaskRange in key order, behind the key after.
func (s *Snapshot) Tasks(want TaskCriteria, after string) iter.Seq2[string, []byte] {
	return s.TaskRange(want).After(after)
}

// NodeTasks yields the keys and records of the tasks that are bound to a node, in key order.
func (s *Snapshot) NodeTasks(node string) iter.Seq2[string, []byte] {
	return s.chosen(&choice{kind: wire.KindTask, of: wire.KindTask, index: indexNode, values: []string{node}})
}

// JobRange returns a range that contains every job that meets all criteria.
func (s *Snapshot) JobRange(want JobCriteria) Range {
	best := choice{kind: wire.KindJobStatus, count: s.Len(wire.KindJobStatus)}
	if strings.Contains(want.Queue, ".") {
		best.offer(s, wire.KindJobStatus, indexQueue, want.Queue, unreadable)
	}
	if want.Owner != "" {
		best.offer(s, wire.KindJobStatus, indexOwner, want.Owner, unreadable)
	}
	if len(want.States) > 0 {
		values := []string{unreadable}
		for _, state := range want.States {
			if int(state) < len(jobValues) {
				values = append(values, jobValues[state])
			}
		}
		best.offer(s, wire.KindJobStatus, indexState, values...)
	}
	for _, label := range want.Labels {
		best.offer(s, wire.KindJobSpec, indexLabel, valueOfLabel(label))
	}
	if len(want.IDs) > 0 && len(want.IDs) < best.count {
		best.keys, best.count = slices.Sorted(slices.Values(want.IDs)), len(want.IDs)
		best.keys = slices.Compact(best.keys)
	}
	return Range{s, best}
}

// Jobs yields the statuses of JobRange in key order, behind the key after.
func (s *Snapshot) Jobs(want JobCriteria, after string) iter.Seq2[string, []byte] {
	return s.JobRange(want).After(after)
}

// JobsFrom yields the statuses of all jobs behind a job in the order of their ids, ascending or
// descending. An empty after stands for the beginning.
func (s *Snapshot) JobsFrom(after string, descending bool) iter.Seq2[string, []byte] {
	if descending {
		return values(s.kinds[wire.KindJobStatus].Backward(after))
	}
	return s.Scan(wire.KindJobStatus, "", after)
}

// JobsBySubmit is JobsFrom in the order of the submits. after is a uid in text. A job whose record
// cannot be read stands behind all others.
func (s *Snapshot) JobsBySubmit(after string, descending bool) iter.Seq2[string, []byte] {
	jobs := s.kinds[wire.KindJobStatus]
	keys, err := jobs.IndexFrom(indexUID, after, descending)
	if err != nil {
		return s.JobsFrom("", descending) // no such index
	}
	return func(yield func(string, []byte) bool) {
		for uid, key := range keys {
			if uid == leaving {
				continue
			}
			if job, _ := jobs.Get(key); !yield(key, job.value) {
				return
			}
		}
	}
}

// Archive returns how the cell's archive is; zero if there has never been one.
func (s *Snapshot) Archive() (plimsoll.ArchiveStatus, error) {
	data, ok := s.Get(wire.KindArchive, "")
	if !ok {
		return plimsoll.ArchiveStatus{}, nil
	}
	status, err := wire.DecodeArchiveStatus(data)
	if err != nil {
		return status, fmt.Errorf("read how far the archive has come: %w", err)
	}
	return status, nil
}

// ArchiveTrouble returns why the archive takes no jobs; empty if it takes them, or there is none.
func (s *Snapshot) ArchiveTrouble() string {
	status, err := s.Archive()
	if err != nil {
		return err.Error()
	}
	return status.Trouble
}

// JobOf returns the id of the job with a uid, in text.
func (s *Snapshot) JobOf(uid string) (id string, ok bool) {
	if uid == "" || uid == leaving || uid == unreadable {
		return "", false
	}
	keys, err := s.kinds[wire.KindJobStatus].IndexKeys(indexUID, "", "", uid)
	if err != nil {
		return "", false // no such index
	}
	for key := range keys {
		return key, true
	}
	return "", false
}

// JobsLeaving returns the number of jobs that are to be deleted, or that have begun to leave the
// active store.
func (s *Snapshot) JobsLeaving() int {
	n, err := s.kinds[wire.KindJobStatus].CountByIndex(indexUID, leaving)
	if err != nil {
		return 0 // no such index
	}
	return n
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

// choice is a range of records: those of a kind, those of some keys, or those that an index has
// under any of the values.
type choice struct {
	kind          wire.Kind
	prefix, after string
	index         string    // empty: no index
	of            wire.Kind // whose index it is; the keys are those of kind
	values        []string
	keys          []string // nil: not these alone
	count         int      // of the records of the index, or of the kind
}

// offer takes the range of an index if it has fewer records.
func (c *choice) offer(s *Snapshot, of wire.Kind, index string, values ...string) {
	count := 0
	for _, value := range values {
		n, err := s.kinds[of].CountByIndex(index, value)
		if err != nil {
			return // no such index
		}
		count += n
	}
	if count < c.count {
		c.index, c.of, c.values, c.count = index, of, values, count
	}
}

func (s *Snapshot) chosen(c *choice) iter.Seq2[string, []byte] {
	switch {
	case c.keys != nil:
		return s.named(c.kind, c.keys, c.after)
	case c.index == "":
		return s.Scan(c.kind, c.prefix, c.after)
	}
	if c.of != c.kind {
		keys, err := s.kinds[c.of].IndexKeys(c.index, c.prefix, c.after, c.values...)
		if err != nil {
			return s.Scan(c.kind, c.prefix, c.after) // no such index
		}
		return s.each(c.kind, keys)
	}
	records, err := s.kinds[c.kind].IndexRange(c.index, c.prefix, c.after, c.values...)
	if err != nil {
		return s.Scan(c.kind, c.prefix, c.after) // no such index
	}
	return values(records)
}

// named yields the records of keys, which are in their order, behind the key after.
func (s *Snapshot) named(kind wire.Kind, keys []string, after string) iter.Seq2[string, []byte] {
	from, there := slices.BinarySearch(keys, after)
	if there {
		from++
	}
	return s.each(kind, slices.Values(keys[from:]))
}

// each yields the records of keys that exist.
func (s *Snapshot) each(kind wire.Kind, keys iter.Seq[string]) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for key := range keys {
			if r, ok := s.kinds[kind].Get(key); ok && !yield(key, r.value) {
				return
			}
		}
	}
}
