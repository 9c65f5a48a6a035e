package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The bounds of criteria.
const (
	maxIDs       = archive.MaxIDs
	maxLabels    = archive.MaxLabels
	maxExitCodes = 100
	maxValues    = 64 // states, results
)

// criteria are the criteria of a list or a watch. Zero values do not restrict. Those that a kind of
// object does not have are zero.
type criteria struct {
	ids          []string // of jobs: one of these, in their order
	job, node    string   // of tasks; node: on which they are now
	lastNode     string   // of tasks: on which the last attempt is or was
	queue, owner string   // of jobs
	labels       []string // of jobs: all of these, key or key=value
	states       []int32  // of jobs or tasks: one of these
	results      []int32  // of jobs or tasks: one of these
	exitCodes    []int32  // of tasks with an attempt that has ended: one of these
	since, until int64    // of the end: from the first on, before the second
	ended        bool     // of jobs: those that have ended
	specs        bool     // send jobs with their specifications
}

// jobFilter is a request which chooses jobs by criteria.
//
//nolint:interfacebloat // one method for each criterion of the requests
type jobFilter interface {
	GetIds() []string
	GetQueue() string
	GetOwner() string
	GetLabels() []string
	GetStates() []pb.JobState
	GetResults() []pb.TaskResult
}

// jobCriteria returns the criteria of a list or a watch of jobs.
func jobCriteria(m jobFilter) (criteria, error) {
	c := criteria{
		ids: m.GetIds(), queue: m.GetQueue(), owner: m.GetOwner(), labels: m.GetLabels(),
		states: numbers(m.GetStates()), results: numbers(m.GetResults()),
	}
	return c, c.validate()
}

// taskCriteria returns the criteria of a list or a watch of tasks.
func taskCriteria(m interface {
	GetJob() string
	GetNode() string
	GetStates() []pb.TaskState
	GetResults() []pb.TaskResult
	GetExitCodes() []int32
},
) (criteria, error) {
	c := criteria{
		job: m.GetJob(), node: m.GetNode(), states: numbers(m.GetStates()), results: numbers(m.GetResults()),
		exitCodes: m.GetExitCodes(),
	}
	return c, c.validate()
}

// validate checks the bounds of the criteria and brings their lists into an order.
func (c *criteria) validate() error {
	for _, list := range [...]struct {
		field     string
		have, may int
	}{
		{"ids", len(c.ids), maxIDs},
		{"labels", len(c.labels), maxLabels},
		{"states", len(c.states), maxValues},
		{"results", len(c.results), maxValues},
		{"exitCodes", len(c.exitCodes), maxExitCodes},
	} {
		if list.have > list.may {
			return plimsoll.Invalid(list.field, "there are %d; give at most %d", list.have, list.may)
		}
	}
	for i, id := range c.ids {
		if err := plimsoll.ValidateID(fmt.Sprintf("ids[%d]", i), id); err != nil {
			return err //nolint:wrapcheck // it names the field
		}
	}
	for i, label := range c.labels {
		key, value, _ := strings.Cut(label, "=")
		if key == "" || len(key) > plimsoll.MaxLabelKey || len(value) > plimsoll.MaxLabelValue {
			return plimsoll.Invalid(fmt.Sprintf("labels[%d]", i),
				"%.200q is neither key nor key=value; a key has 1 to %d bytes and a value at most %d",
				label, plimsoll.MaxLabelKey, plimsoll.MaxLabelValue)
		}
	}
	c.ids, c.labels = ordered(c.ids), ordered(c.labels)
	c.exitCodes = ordered(c.exitCodes)
	return nil
}

// ordered returns a list in its order and without repetitions. The given one belongs to a request,
// which others may share.
func ordered[E string | int32](list []E) []E {
	if len(list) < 2 {
		return list
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// period sets the criteria of a list of objects that have ended within a time.
func (c *criteria) period(since, until int64) error {
	if since < 0 || until < 0 {
		return plimsoll.Invalid("since", "is before 1970; give Unix nanoseconds")
	}
	if until > 0 && since >= until {
		return plimsoll.Invalid("until", "is not later than since, so nothing can lie between both")
	}
	c.since, c.until = since, until
	return nil
}

// restricts reports whether there is any criterion that a record is looked at for.
func (c *criteria) restricts() bool {
	return c.queue != "" || c.owner != "" || c.node != "" || c.lastNode != "" || len(c.labels) > 0 ||
		len(c.states) > 0 || len(c.results) > 0 || len(c.exitCodes) > 0 || len(c.ids) > 0 ||
		c.since > 0 || c.until > 0 || c.ended
}

// indexed reports whether an index of jobs has exactly those that meet the criteria.
func (c *criteria) indexed() bool {
	n := 0
	for _, restricts := range [...]bool{
		c.owner != "", c.queue != "" && c.queue != plimsoll.RootQueue,
		len(c.states) > 0,
	} {
		if restricts {
			n++
		}
	}
	rest := *c
	rest.owner, rest.queue, rest.states, rest.ended = "", "", nil, false
	return len(c.ids) == 0 && !rest.restricts() && (n == 0 || n == 1 && !c.ended)
}

// jobs returns the criteria by which a snapshot chooses a range of jobs.
func (c *criteria) jobs() replica.JobCriteria {
	states := c.states
	if len(states) == 0 && (c.ended || len(c.results) > 0 || c.since > 0) {
		for state := range plimsoll.JobState(plimsoll.NumJobStates) {
			if state.Ended() {
				states = append(states, int32(state))
			}
		}
	}
	return replica.JobCriteria{
		IDs: c.ids, Queue: c.queue, Owner: c.owner, Labels: c.labels,
		States: wire.EnumsFromProto[plimsoll.JobState](states),
	}
}

// tasks returns the criteria by which a snapshot chooses a range of tasks.
func (c *criteria) tasks() replica.TaskCriteria {
	return replica.TaskCriteria{
		Job: c.job, Node: c.node, States: wire.EnumsFromProto[plimsoll.TaskState](c.states),
		Results: wire.EnumsFromProto[plimsoll.TaskResult](c.results),
	}
}

// part returns a part of the objects of a kind that holds all those which meet the criteria. It is
// the smallest that a reader of changes can have.
func (c *criteria) part(kind wire.Kind) replica.Part {
	for _, p := range [...]replica.Part{
		{Kind: wire.KindTask, By: replica.ByJob, Value: c.job},
		{Kind: wire.KindTask, By: replica.ByNode, Value: c.node},
		{Kind: wire.KindJobStatus, By: replica.ByOwner, Value: c.owner},
		{Kind: wire.KindJobStatus, By: replica.ByQueue, Value: c.queue},
	} {
		if p.Kind == kind && p.Value != "" {
			return p
		}
	}
	return replica.Part{Kind: kind}
}

// facts are the properties of an object that criteria look at. Its slices may be parts of the
// record.
type facts struct {
	exists       bool
	key          string // of the record
	node         []byte // on which a task is now; empty: none
	lastNode     []byte // of the last attempt of a task
	queue, owner []byte
	spec         []byte // the record of a job's specification, for its labels
	state        int32
	result       int32
	exitCode     int32
	finished     int64
	deleted      bool // the job is about to be deleted
}

// taskFacts returns the facts of a task. Its record keeps the node after the end too.
func taskFacts(key string, t *wire.TaskFacts) facts {
	f := facts{
		exists: true, key: key, state: t.State, result: t.Result, exitCode: t.ExitCode, finished: t.Finished,
		lastNode: t.Node,
	}
	if plimsoll.TaskState(t.State).OnNode() {
		f.node = t.Node
	}
	if plimsoll.TaskState(t.State) == plimsoll.TaskStopping {
		f.result, f.exitCode = 0, 0 // the record has the result that the attempt will end with
	}
	return f
}

// jobFacts returns the facts of a job.
func jobFacts(id string, j *wire.JobFacts) facts {
	return facts{
		exists: true, key: id, queue: j.Queue, owner: j.Owner, state: j.State, result: int32(j.Result()),
		finished: j.Finished,
		deleted:  j.Deleted,
	}
}

// factsOf returns the facts of a record for the criteria of a watch.
func factsOf(kind wire.Kind, key string, value []byte) (facts, error) {
	switch kind {
	case wire.KindTask:
		task, err := wire.LookAtTask(value)
		if err != nil {
			return facts{}, undecodable(kind, key, err)
		}
		return taskFacts(key, &task), nil
	case wire.KindJobStatus:
		job, err := wire.LookAtJob(value)
		if err != nil {
			return facts{}, undecodable(kind, key, err)
		}
		return jobFacts(key, &job), nil
	}
	return facts{exists: true, key: key}, nil
}

// met reports whether an object meets the criteria.
func (c *criteria) met(f *facts) bool {
	return (c.job == "" || wire.IsTaskKeyOf(f.key, c.job)) && (c.node == "" || string(f.node) == c.node) &&
		(c.owner == "" || string(f.owner) == c.owner) && isOrBelow(f.queue, c.queue) &&
		(len(c.states) == 0 || slices.Contains(c.states, f.state)) && c.metRarer(f)
}

// metRarer is met for the criteria that few lists have.
func (c *criteria) metRarer(f *facts) bool {
	switch {
	case c.lastNode != "" && string(f.lastNode) != c.lastNode,
		len(c.results) > 0 && !slices.Contains(c.results, f.result),
		len(c.exitCodes) > 0 && (f.result == 0 || !has(c.exitCodes, f.exitCode)),
		(c.since > 0 || c.until > 0) && (f.finished == 0 || f.finished < c.since || c.until > 0 &&
			f.finished >= c.until),
		len(c.ids) > 0 && !has(c.ids, f.key):
		return false
	}
	return len(c.labels) == 0 || hasLabels(f.spec, c.labels)
}

// has reports whether a list, which is in its order, has an element.
func has[E string | int32](list []E, element E) bool {
	_, found := slices.BinarySearch(list, element)
	return found
}

// hasLabels reports whether an encoded specification has all labels, which are in their order.
func hasLabels(spec []byte, labels []string) bool {
	var found [maxLabels]bool
	for key, value := range wire.PeekLabels(spec) {
		for i, label := range labels {
			wanted, with, whole := strings.Cut(label, "=")
			found[i] = found[i] || string(key) == wanted && (!whole || string(value) == with)
		}
	}
	return !slices.Contains(found[:len(labels)], false)
}
