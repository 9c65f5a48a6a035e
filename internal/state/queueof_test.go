package state

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// places is a state whose jobs get their queues by rules.
type places struct {
	*State
	t        *testing.T
	revision uint64
	events   []string // of the last turn
}

func newPlaces(t *testing.T, cfg Config, root plimsoll.QueueConfig) *places {
	t.Helper()
	p := &places{State: New(cfg, plimsoll.DefaultQueues()), t: t}
	p.turn(func() {
		if err := p.SetQueueConfig(&root); err != nil {
			t.Fatal(err)
		}
	})
	return p
}

// turn calls do in a turn of its own, and keeps the events of queues.
func (p *places) turn(do func()) *Changes {
	p.t.Helper()
	p.revision++
	p.Begin(int64(p.revision)*second, p.revision)
	do()
	p.Continue(p.Budget())
	var c Changes
	p.Take(&c)
	p.events = nil
	for _, e := range c.Events {
		if e.Type == plimsoll.EventQueue && e.Detail != plimsoll.QueueApp {
			text := fmt.Sprint(e.Change, " ", e.Detail, " ", e.Object, " ", e.Message)
			p.events = append(p.events, strings.TrimSpace(text))
		}
	}
	if p.revision < 20 || p.revision%100 == 0 { // it costs as much as everything there is
		if err := p.Check(); err != nil {
			p.t.Fatal(err)
		}
	}
	return &c
}

// submit submits a job and returns its queue, or why it has none.
func (p *places) submit(id, owner, queue string) (path string) {
	p.t.Helper()
	spec := &plimsoll.JobSpec{
		ID: id, Owner: owner, Queue: queue, Token: "token",
		Groups: []plimsoll.GroupSpec{{Name: "g", Count: 1, Command: []string{"true"}}},
	}
	p.turn(func() {
		j, err := p.Submit(spec, false)
		if err != nil {
			path = err.Error()
			return
		}
		if path = j.Queue.Path; j.Spec.Queue != path || p.JobStatus(j).Queue != path {
			p.t.Errorf("job %s is in %s, but its specification says %q", id, path, j.Spec.Queue)
		}
	})
	return path
}

func (p *places) kill(id string) {
	p.t.Helper()
	p.turn(func() {
		if err := p.Kill(id, ""); err != nil {
			p.t.Fatal(err)
		}
	})
}

func (p *places) want(what string, events ...string) {
	p.t.Helper()
	if got, want := strings.Join(p.events, "\n"), strings.Join(events, "\n"); got != want {
		p.t.Errorf("%s: the events are\n%s\nwant\n%s", what, got, want)
	}
}

// usersTree has a queue for each user, made by a rule from a template.
func usersTree() plimsoll.QueueConfig {
	return plimsoll.QueueConfig{
		Name: "root", Parent: true,
		Partition: &plimsoll.PartitionConfig{Rules: []plimsoll.PlacementRule{
			{Name: "provided", Create: true},
			{Name: "user", Create: true, Parent: &plimsoll.PlacementRule{Name: "fixed", Value: "root.users"}},
		}},
		Queues: []plimsoll.QueueConfig{{Name: "users", Parent: true, Template: &plimsoll.QueueTemplate{
			Max: plimsoll.Resources{"cpu": 1000, "memory": 1 << 30}, Guaranteed: plimsoll.Resources{"cpu": 10},
			MaxJobs: 3, Properties: map[string]string{"application.sort.policy": "fair"},
		}}},
	}
}

// A rule makes the queue of a job, from the nearest template. The queue disappears with its last
// job, and the queues above it that were made with it. A load keeps it.
func TestQueuesAreMadeForJobs(t *testing.T) {
	p := newPlaces(t, Config{}, usersTree())
	if got := p.submit("a", "ann", ""); got != "root.users.ann" {
		t.Fatal(got)
	}
	p.want("the first job", "ADD QUEUE_DYNAMIC root.users.ann", "SET QUEUE_MAX root.users.ann",
		"SET QUEUE_GUARANTEED root.users.ann")
	ann := p.Queue("root.users.ann")
	if c := ann.Stated(); !ann.Dynamic || ann.Max[0] != 1000 || ann.MaxAccounts != 3 ||
		c.Properties["application.sort.policy"] != "fair" {
		t.Errorf("the queue states %+v", c)
	}
	if got := p.submit("b", "Ann", ""); got != "root.users.ann" || len(p.events) > 0 {
		t.Errorf("the next job is in %s, with %v", got, p.events)
	}
	if got := p.submit("c", "bob", "root.deep.er.q"); got != "root.deep.er.q" {
		t.Fatal(got)
	}
	p.want("deep queues", "ADD QUEUE_DYNAMIC root.deep", "SET QUEUE_TYPE root.deep leaf queue: false",
		"ADD QUEUE_DYNAMIC root.deep.er", "SET QUEUE_TYPE root.deep.er leaf queue: false",
		"ADD QUEUE_DYNAMIC root.deep.er.q")
	var all Changes
	if err := p.All(&all, nil); err != nil {
		t.Fatal(err)
	}
	l := NewLoader(Config{}, plimsoll.DefaultQueues())
	l.QueueConfig(*all.QueueConfig)
	for i := range all.JobSpecs {
		l.JobSpec(*all.JobSpecs[i])
		l.JobStatus(all.JobStatuses[i].JobStatus)
	}
	for i := range all.Tasks {
		l.Task(all.Tasks[i])
	}
	var err error
	if p.State, err = l.End(int64(p.revision) * second); err != nil {
		t.Fatal(err)
	}
	if q := p.Queue("root.deep.er.q"); q == nil || !q.Dynamic || p.Queue("root.users.ann").Accounts != 2 {
		t.Fatal("a load does not keep the queues")
	}
	p.kill("c")
	p.want("the last job below", "REMOVE QUEUE_DYNAMIC root.deep.er.q", "REMOVE QUEUE_DYNAMIC root.deep.er",
		"REMOVE QUEUE_DYNAMIC root.deep")
	p.kill("a")
	if p.want("one of two jobs"); p.Queue("root.users.ann") == nil {
		t.Error("a queue with a job has gone")
	}
	p.kill("b")
	p.want("the other one", "REMOVE QUEUE_DYNAMIC root.users.ann")
}

// A dynamic queue that the configuration names becomes an ordinary one, and stays. One that it does
// not name stays until it is empty.
func TestMadeQueuesOverAReload(t *testing.T) {
	p := newPlaces(t, Config{}, usersTree())
	p.submit("a", "ann", "")
	p.submit("b", "bob", "")
	next := usersTree()
	next.Queues[0].Queues = []plimsoll.QueueConfig{{Name: "ann"}}
	p.turn(func() {
		if err := p.SetQueueConfig(&next); err != nil {
			t.Fatal(err)
		}
	})
	p.want("a reload", "SET QUEUE_MAX root.users.ann", "SET QUEUE_GUARANTEED root.users.ann",
		"SET QUEUE_DYNAMIC root.users.ann dynamic: false")
	stored := p.QueueConfig() // a user may apply what was read, with the dynamic queues in it
	p.turn(func() {
		if err := p.SetQueueConfig(&stored); err != nil {
			t.Fatal(err)
		}
	})
	if p.want("the same again"); !p.Queue("root.users.bob").Dynamic {
		t.Error("a dynamic queue is configured because it was read")
	}
	p.kill("a")
	p.want("the last job of a configured queue")
	p.kill("b")
	p.want("the last job of a dynamic queue", "REMOVE QUEUE_DYNAMIC root.users.bob")
}

// A refused job makes no queue, and a repeated submit gets the queue of the first, whatever the
// rules say now.
func TestRefusedAndRepeatedSubmits(t *testing.T) {
	root := usersTree()
	root.Queues[0].MaxTasks = 1
	p := newPlaces(t, Config{}, root)
	if got := p.submit("a", "ann", ""); got != "root.users.ann" {
		t.Fatal(got)
	}
	if got := p.submit("b", "bob", ""); !strings.HasPrefix(got, "maxtasks: the jobs of root.users have 1") {
		t.Error(got)
	}
	if p.Queue("root.users.bob") != nil {
		t.Error("a refused job has made a queue")
	}
	root.Partition = nil
	p.turn(func() {
		if err := p.SetQueueConfig(&root); err != nil {
			t.Fatal(err)
		}
	})
	if got := p.submit("a", "ann", ""); got != "root.users.ann" {
		t.Errorf("a repeated submit: %s", got)
	}
	got := p.submit("c", "ann", "root.nope")
	if !strings.Contains(got, `"root.nope" does not exist; the leaf queues are`) {
		t.Error(got)
	}
}

// As many queues are made as the tree and its record have room for.
func TestMadeQueuesAreBounded(t *testing.T) {
	root := usersTree()
	wide := plimsoll.QueueConfig{Name: "wide", Parent: true}
	for i := range plimsoll.MaxQueues - 4 {
		wide.Queues = append(wide.Queues, plimsoll.QueueConfig{Name: fmt.Sprint("q", i)})
	}
	root.Queues = append(root.Queues, wide)
	p := newPlaces(t, Config{}, root)
	if got := p.submit("a", "ann", ""); got != "root.users.ann" {
		t.Fatal(got)
	}
	if got := p.submit("b", "bob", ""); !strings.Contains(got, "there are 10000 queues") {
		t.Error(got)
	}

	p = newPlaces(t, Config{Limits: Limits{Ops: 100, Bytes: 1 << 20}}, usersTree())
	refused := ""
	for i := 0; refused == "" && i < 3000; i++ {
		if got := p.submit(fmt.Sprint("j", i), fmt.Sprintf("%060d", i), ""); !strings.HasPrefix(got, "root.users.") {
			refused = got
		}
	}
	if !strings.Contains(refused, "the queues would take") {
		t.Errorf("refused: %q", refused)
	}
	n := 0
	p.Tree().Root.Walk(func(*queue.Queue) { n++ })
	if n < 500 {
		t.Errorf("only %d queues fit", n)
	}
}

// Unless the operator has said that owners can be believed, no setting that holds for users is
// applied. Nor is a job taken into a stored tree that has such settings.
func TestOwnersMustBeTrusted(t *testing.T) {
	listed := plimsoll.DefaultQueues()
	listed.Queues[1].SubmitAccess = &plimsoll.AccessList{Users: []string{"ann"}}
	limited := plimsoll.DefaultQueues()
	limited.Queues[0].Limits = []plimsoll.QueueLimit{{Users: []string{"*"}, MaxJobs: 1}}
	s := New(Config{}, plimsoll.DefaultQueues())
	s.Begin(second, 1)
	for _, tree := range []plimsoll.QueueConfig{listed, limited} {
		if err := s.SetQueueConfig(&tree); err == nil || !strings.Contains(err.Error(), "--trust-owner") {
			t.Errorf("applied: %v", err)
		}
	}
	all := plimsoll.DefaultQueues() // it names nobody
	all.SubmitAccess = &plimsoll.AccessList{Everybody: true}
	if err := s.SetQueueConfig(&all); err != nil {
		t.Error(err)
	}
	l := NewLoader(Config{}, listed)
	if _, err := l.End(second); err == nil || !strings.Contains(err.Error(), "root.batch has a submitacl") {
		t.Errorf("a first start: %v", err)
	}
	load := func(trust bool) *places {
		l := NewLoader(Config{TrustOwner: trust}, plimsoll.DefaultQueues())
		l.QueueConfig(listed)
		s, err := l.End(second)
		if err != nil {
			t.Fatal(err)
		}
		return &places{State: s, t: t, revision: 2}
	}
	if got := load(false).submit("a", "ann", "root.batch"); !strings.Contains(got, "--trust-owner") {
		t.Errorf("a stored tree: %s", got)
	}
	p := load(true)
	if got := p.submit("a", "ann", "root.batch"); got != "root.batch" {
		t.Error(got)
	}
	if got := p.submit("b", "bob", "root.batch"); !strings.Contains(got, `"bob" may not submit to root.batch`) {
		t.Error(got)
	}
}
