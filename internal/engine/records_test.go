package engine_test

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// records is a store of records in memory. It survives a crash of the engine.
type records struct {
	specs    map[string]*plimsoll.JobSpec
	statuses map[string]plimsoll.JobStatus
	tasks    map[state.TaskName]plimsoll.Task
	nodes    map[string]plimsoll.Node
	queues   *plimsoll.QueueConfig
	policies map[plimsoll.PolicyRef]plimsoll.Policy
	outcomes map[string]state.Outcome
	archive  plimsoll.ArchiveStatus
	events   *plimsoll.EventSettings

	historians map[string]plimsoll.Historian
	pasts      map[string]state.QueuePast
}

func newRecords() *records {
	return &records{
		map[string]*plimsoll.JobSpec{},
		map[string]plimsoll.JobStatus{},
		map[state.TaskName]plimsoll.Task{},
		map[string]plimsoll.Node{},
		nil,
		map[plimsoll.PolicyRef]plimsoll.Policy{},
		map[string]state.Outcome{},
		plimsoll.ArchiveStatus{},
		nil,
		map[string]plimsoll.Historian{},
		map[string]state.QueuePast{},
	}
}

// commit stores a turn: puts first, then deletes, as the coordinator writes them. It fails if an
// object is put and deleted in one batch, because the object would be lost.
func (r *records) commit(c *state.Changes) error {
	put := map[any]bool{}
	for _, spec := range c.JobSpecs {
		r.specs[spec.ID] = spec
		put["job "+spec.ID] = true
	}
	for i := range c.JobStatuses {
		put["job "+c.JobStatuses[i].ID] = true
		if !c.JobStatuses[i].Ephemeral {
			r.statuses[c.JobStatuses[i].ID] = c.JobStatuses[i].JobStatus
		}
	}
	for _, t := range c.Tasks {
		name := state.TaskName{Job: t.Job, Group: t.Group, Index: t.Index}
		r.tasks[name], put[name] = t, true
	}
	for _, n := range c.Nodes {
		r.nodes[n.ID], put["node "+n.ID] = n, true
	}
	for i := range c.Policies {
		r.policies[c.Policies[i].Ref()], put[c.Policies[i].Ref()] = c.Policies[i], true
	}
	for _, o := range c.Outcomes {
		r.outcomes[o.Token], put["token "+o.Token] = o, true
	}
	for _, p := range c.QueuePasts {
		r.pasts[p.Path], put["past "+p.Path] = p, true
	}
	for i := range c.QueueStatuses {
		put["queue "+c.QueueStatuses[i].Path] = true
	}
	if c.QueueConfig != nil {
		r.queues = c.QueueConfig
	}
	if c.Archive != nil {
		r.archive = *c.Archive
	}
	if c.EventSettings != nil {
		r.events = c.EventSettings
	}
	for _, h := range c.Historians {
		r.historians[h.Name], put["historian "+h.Name] = h, true
	}
	return r.drop(c, put)
}

func (r *records) drop(c *state.Changes, put map[any]bool) error {
	var both error
	check := func(key any) {
		if put[key] {
			both = fmt.Errorf("%v is put and deleted, or deleted twice, in one batch", key)
		}
		put[key] = true
	}
	for _, id := range c.DeletedJobs {
		delete(r.specs, id)
		delete(r.statuses, id)
		check("job " + id)
	}
	for _, name := range c.DeletedTasks {
		delete(r.tasks, name)
		check(name)
	}
	for _, id := range c.DeletedNodes {
		delete(r.nodes, id)
		check("node " + id)
	}
	for _, ref := range c.DeletedPolicies {
		delete(r.policies, ref)
		check(ref)
	}
	for _, token := range c.DeletedOutcomes {
		delete(r.outcomes, token)
		check("token " + token)
	}
	for _, name := range c.DeletedHistorians {
		delete(r.historians, name)
		check("historian " + name)
	}
	for _, path := range c.DeletedQueuePasts {
		delete(r.pasts, path)
		check("past " + path)
	}
	for _, path := range c.DeletedQueues {
		check("queue " + path)
	}
	return both
}

// load gives the records to a Loader in the random order of the maps.
func (r *records) load(cfg state.Config, at int64) (*state.State, error) {
	l := state.NewLoader(cfg, plimsoll.DefaultQueues())
	if r.queues != nil {
		l.QueueConfig(*r.queues)
	}
	l.Archive(r.archive)
	if r.events != nil {
		l.EventSettings(*r.events)
	}
	for _, h := range r.historians {
		l.Historian(h)
	}
	for _, p := range r.pasts {
		l.QueuePast(p)
	}
	for _, spec := range r.specs {
		l.JobSpec(*spec)
	}
	for _, st := range r.statuses {
		l.JobStatus(st)
	}
	for _, t := range r.tasks {
		l.Task(t)
	}
	for _, n := range r.nodes {
		l.Node(n)
	}
	for _, p := range r.policies {
		l.Policy(p)
	}
	for _, o := range r.outcomes {
		l.Outcome(o)
	}
	return l.End(at)
}

// clone returns a copy of the records.
func (r *records) clone() *records {
	return &records{
		maps.Clone(r.specs), maps.Clone(r.statuses), maps.Clone(r.tasks), maps.Clone(r.nodes), r.queues,
		maps.Clone(r.policies), maps.Clone(r.outcomes), r.archive, r.events,
		maps.Clone(r.historians), maps.Clone(r.pasts),
	}
}

// The methods from here on implement state.Records.
func (r *records) Job(id string) *plimsoll.JobSpec {
	if r.statuses[id].State == plimsoll.JobExpired {
		return nil
	}
	return r.specs[id]
}

func (r *records) Task(job, group string, index int32) (plimsoll.Task, bool) {
	t, ok := r.tasks[state.TaskName{Job: job, Group: group, Index: index}]
	return t, ok
}

func (r *records) JobStatus(id string) (plimsoll.JobStatus, bool) {
	status, ok := r.statuses[id]
	return status, ok
}

func (r *records) JobStatuses(string) iter.Seq[plimsoll.JobStatus] {
	list := slices.Sorted(maps.Keys(r.statuses))
	return func(yield func(plimsoll.JobStatus) bool) {
		for _, id := range list {
			if !yield(r.statuses[id]) {
				return
			}
		}
	}
}

func (r *records) Nodes() iter.Seq[plimsoll.Node] {
	return func(yield func(plimsoll.Node) bool) {
		for _, id := range slices.Sorted(maps.Keys(r.nodes)) {
			if !yield(r.nodes[id]) {
				return
			}
		}
	}
}

func (r *records) NodeTasks(node string) iter.Seq[plimsoll.Task] {
	var list []plimsoll.Task
	for _, t := range r.tasks {
		if t.Node == node && t.State.OnNode() {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b plimsoll.Task) int {
		return strings.Compare(plimsoll.TaskID(a.Job, a.Group, a.Index), plimsoll.TaskID(b.Job, b.Group, b.Index))
	})
	return slices.Values(list)
}

func dump(s *state.State) (string, error) {
	var b bytes.Buffer
	err := s.Dump(&b)
	return b.String(), err
}

func firstDifference(a, b string) string {
	as, bs := bytes.Split([]byte(a), []byte("\n")), bytes.Split([]byte(b), []byte("\n"))
	for i := range min(len(as), len(bs)) {
		if !bytes.Equal(as[i], bs[i]) {
			return fmt.Sprintf("one:   %s\nother: %s", as[i], bs[i])
		}
	}
	return fmt.Sprintf("%d lines and %d", len(as), len(bs))
}
