package queue_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// fixture is a tree in which each job has one lane.
type fixture struct {
	t     testing.TB
	tree  *queue.Tree
	names *placement.Names
	jobs  int32
	told  map[*queue.Lane]string // last cause told to each lane

	owner    queue.Owner // of the jobs that enter
	priority int32       // of their lanes
}

type fixtureJob struct {
	queue.Account
	queue.Lane
}

func newFixture(t testing.TB, queues ...plimsoll.QueueConfig) *fixture {
	c := plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true, Queues: queues}
	p := &fixture{t: t, names: placement.NewNames(), told: map[*queue.Lane]string{}}
	p.tree = queue.New(p.names, &c)
	return p
}

func (p *fixture) class(cpu, memory int64) *queue.Class {
	a, _ := p.names.Amounts(plimsoll.Resources{plimsoll.CPU: cpu, plimsoll.Memory: memory})
	return p.tree.NewClass(&a)
}

// enter puts a job without tasks into a leaf.
func (p *fixture) enter(leaf string, c *queue.Class) *fixtureJob {
	p.jobs++
	j := &fixtureJob{}
	j.Account.ID, j.Lane.ID = p.jobs, p.jobs
	p.tree.Enter(&j.Account, p.tree.Find(leaf), p.owner, int64(p.jobs))
	p.tree.Add(&j.Lane, &j.Account, c, p.priority, 0)
	return j
}

// job puts a job into a leaf. n of its tasks may be placed once it is admitted.
func (p *fixture) job(leaf string, c *queue.Class, n int32) *fixtureJob {
	j := p.enter(leaf, c)
	p.tree.Pend(&j.Lane, n)
	p.tree.Ready(&j.Lane, n)
	p.tree.Admit(&j.Account)
	return j
}

// leave removes a job with waiting tasks from the tree.
func (p *fixture) leave(j *fixtureJob) {
	n := j.Ready()
	p.tree.Pend(&j.Lane, -n)
	p.tree.Ready(&j.Lane, -n)
	p.tree.Leave(&j.Account)
}

// readmit admits parked jobs, and returns the number of steps.
func (p *fixture) readmit() (steps int) {
	p.t.Helper()
	for p.tree.Readmit() != nil {
		steps++
	}
	if err := p.tree.Check(); err != nil {
		p.t.Fatal(err)
	}
	return steps
}

// cycle places all lanes that it can, and tells the others why they wait.
func (p *fixture) cycle() (placed int) {
	p.t.Helper()
	for l := p.tree.Next(); l != nil; l = p.tree.Next() {
		p.tree.Charge(l)
		placed++
	}
	p.tree.Settle()
	for l, c, ok := p.tree.NextCause(); ok; l, c, ok = p.tree.NextCause() {
		p.told[l] = c.Code.String()
		if c.Quota != nil {
			p.told[l] = fmt.Sprintf("%s%s has too little %s",
				c.Quota.At().Path, c.Quota.UserOrGroup(), p.names.Name(c.Resource))
		}
	}
	if err := p.tree.Check(); err != nil {
		p.t.Fatal(err)
	}
	return placed
}

func (p *fixture) want(j *fixtureJob, told string) {
	p.t.Helper()
	if got := p.told[&j.Lane]; got != told {
		p.t.Errorf("the job was told %q, want %q", got, told)
	}
}

// A lane is told the short resource of a queue. It is not told again when another resource is
// short there instead: with many lanes that would cost at each end of a task.
func TestLanesAreToldTheResourceThatRanShort(t *testing.T) {
	p := newFixture(t, plimsoll.QueueConfig{Name: "a", Max: plimsoll.Resources{plimsoll.CPU: 4, plimsoll.Memory: 4}})
	first, second := p.job("root.a", p.class(3, 1), 1), p.job("root.a", p.class(1, 3), 1)
	p.cycle()
	both := []*fixtureJob{p.job("root.a", p.class(2, 2), 1), p.job("root.a", p.class(2, 2), 1)}
	want := func(told string) {
		t.Helper()
		p.cycle()
		for _, j := range both {
			p.want(j, told)
		}
	}
	want("root.a has too little cpu")
	p.tree.Refund(&first.Lane)
	third := p.job("root.a", p.class(3, 0), 1) // takes the cpu again
	want("root.a has too little cpu")
	p.tree.Refund(&third.Lane)
	want("root.a has too little cpu")
	p.tree.Refund(&second.Lane)
	if p.cycle() == 0 {
		t.Error("nothing is placed, and there is room")
	}
}

// A queue keeps nothing of classes that are gone, although it had no room for them.
func TestRefusedClassesLeaveNothingBehind(t *testing.T) {
	p := newFixture(
		t, plimsoll.QueueConfig{Name: "full", Max: plimsoll.Resources{plimsoll.CPU: 4}},
		plimsoll.QueueConfig{Name: "free"},
	)
	p.job("root.free", p.class(100, 0), 1) // so that the other queue goes first
	for i := range int64(100) {
		c := p.class(3, i)
		p.tree.Block(c, plimsoll.WaitNoNode)
		there := p.job("root.full", c, 1)
		here := p.job("root.free", c, 1)
		p.cycle()
		fill := p.job("root.full", p.class(2, 0), 1)
		p.cycle()
		p.tree.Open(c)
		if l := p.tree.Next(); l != &here.Lane { // Next refuses the lane of the full queue on the way
			t.Fatalf("next is %v", l)
		}
		p.tree.Block(c, plimsoll.WaitNoNode)
		p.cycle()
		p.leave(there)
		p.leave(here)
		p.tree.Refund(&fill.Lane)
		p.leave(fill)
		p.cycle()
	}
}

// Of two leaves that fill their parent, jobs go in the order in which they were parked, however
// many the other leaf has parked.
func TestParkedJobsOfOneLeafDoNotPassThoseOfAnother(t *testing.T) {
	p := newFixture(t, plimsoll.QueueConfig{Name: "team", Parent: true, MaxJobs: 2, Queues: []plimsoll.QueueConfig{
		{Name: "many", MaxJobs: 2}, {Name: "one"},
	}})
	c := p.class(1, 1)
	var jobs []*fixtureJob
	for range 3 {
		jobs = append(jobs, p.job("root.team.many", c, 1))
	}
	one := p.job("root.team.one", c, 1)
	for range 1000 {
		jobs = append(jobs, p.job("root.team.many", c, 1))
	}
	moves := 0
	end := func(j *fixtureJob) {
		p.leave(j)
		moves += p.readmit()
	}
	end(jobs[0])
	if !jobs[2].Admitted() || one.Admitted() {
		t.Fatalf("the third job is admitted: %t, the fourth: %t", jobs[2].Admitted(), one.Admitted())
	}
	end(jobs[1])
	if !one.Admitted() || jobs[3].Admitted() {
		t.Fatalf("the fourth job is admitted: %t, the fifth: %t", one.Admitted(), jobs[3].Admitted())
	}
	end(one)
	if !jobs[3].Admitted() || jobs[3].Parked() != nil {
		t.Fatal("the fifth job is not admitted, and there is room")
	}
	for i := 2; i < 1000; i++ {
		if !jobs[i].Admitted() || jobs[i+2].Admitted() {
			t.Fatalf(
				"job %d is admitted: %t, and the one after the next: %t", i, jobs[i].Admitted(), jobs[i+2].Admitted(),
			)
		}
		end(jobs[i])
	}
	if moves > 2100 {
		t.Errorf("1,000 jobs were admitted by %d steps", moves)
	}
}

// Jobs parked in a leaf with room are admitted when its parent has room. The first of them waits
// there for all; when it is admitted or killed, the next one takes its place.
func TestParkedJobsAreReplacedWhereTheyWait(t *testing.T) {
	p := newFixture(t, plimsoll.QueueConfig{Name: "team", Parent: true, MaxJobs: 2, Queues: []plimsoll.QueueConfig{
		{Name: "one"}, {Name: "two", MaxJobs: 2},
	}})
	c := p.class(1, 1)
	runs := []*fixtureJob{p.job("root.team.two", c, 1), p.job("root.team.two", c, 1)}
	var jobs, begun []*fixtureJob
	for range 4 {
		jobs = append(jobs, p.job("root.team.two", c, 1))
	}
	for range 2 { // before the limit was lowered
		j := p.enter("root.team.one", c)
		p.tree.AdmitAnyway(&j.Account)
		begun = append(begun, j)
	}
	p.leave(runs[0])
	p.leave(runs[1])
	stands := func(i int) {
		t.Helper()
		p.readmit()
		if got := jobs[i].Parked(); got == nil || got.At().Path != "root.team" {
			t.Fatalf("job %d is parked at %v", i, got)
		}
	}
	stands(0)
	p.leave(jobs[0])
	stands(1)
	p.leave(begun[0])
	stands(2)
	p.leave(begun[1])
	p.readmit()
	if !jobs[1].Admitted() || !jobs[2].Admitted() || jobs[3].Admitted() {
		t.Fatal("the next two are not those that are let in")
	}
}
