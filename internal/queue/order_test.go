package queue_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// as makes the jobs that enter next those of a user of a group, with a priority.
func (p *fixture) as(user, group string, priority int32) *fixture {
	p.owner, p.priority = queue.Owner{User: user, Groups: []string{group}}, priority
	return p
}

// place places n tasks and returns how many of them each job got.
func (p *fixture) place(n int, jobs ...*fixtureJob) (got []int) {
	p.t.Helper()
	got = make([]int, len(jobs))
	for range n {
		l := p.tree.Next()
		if l == nil {
			break
		}
		p.tree.Charge(l)
		for i, j := range jobs {
			if l == &j.Lane {
				got[i]++
			}
		}
	}
	if err := p.tree.Check(); err != nil {
		p.t.Fatal(err)
	}
	return got
}

func (p *fixture) wantPlaced(n int, jobs []*fixtureJob, want ...int) {
	p.t.Helper()
	for i, got := range p.place(n, jobs...) {
		if got != want[i] {
			p.t.Errorf("of %d tasks job %d got %d, want %d", n, i, got, want[i])
		}
	}
}

func withProperties(name string, pairs ...string) plimsoll.QueueConfig {
	c := plimsoll.QueueConfig{Name: name, Properties: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		c.Properties[pairs[i]] = pairs[i+1]
	}
	return c
}

// A queue counts as its highest waiting priority plus its offset, and behind a fence as the offset.
func TestPriorityOfQueues(t *testing.T) {
	for name, test := range map[string]struct {
		a, b plimsoll.QueueConfig
		want []int // of 8 tasks, for a job of priority 4 in a and one of 1 in b; each has 6
	}{
		"priority":        {withProperties("a"), withProperties("b"), []int{6, 2}},
		"offset":          {withProperties("a"), withProperties("b", "priority.offset", "5"), []int{2, 6}},
		"negative offset": {withProperties("a", "priority.offset", "-5"), withProperties("b"), []int{2, 6}},
		"fence":           {withProperties("a", "priority.policy", "fence"), withProperties("b"), []int{2, 6}},
		"fence and offset": {
			withProperties("a"), withProperties("b", "priority.policy", "fence", "priority.offset", "5"), []int{2, 6},
		},
		"beyond the largest": {
			withProperties("a"), withProperties("b", "priority.offset", "2147483647"), []int{2, 6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFixture(t, test.a, test.b)
			c := p.class(1, 0)
			jobs := []*fixtureJob{p.as("", "", 4).job("root.a", c, 6), p.as("", "", 1).job("root.b", c, 6)}
			p.wantPlaced(8, jobs, test.want...)
		})
	}
}

// Where priority is disabled the share decides between queues, and the age between jobs.
func TestDisabledPriority(t *testing.T) {
	team := withProperties("team", "application.sort.priority", "disabled")
	team.Queues = []plimsoll.QueueConfig{{Name: "a"}, {Name: "b"}}
	p := newFixture(t, team)
	c := p.class(1, 0)
	jobs := []*fixtureJob{
		p.as("", "", 9).job("root.team.a", c, 8), p.as("", "", 0).job("root.team.b", c, 4),
		p.as("", "", 5).job("root.team.b", c, 4),
	}
	p.wantPlaced(8, jobs, 4, 4, 0)
}

// Fair jobs of a leaf get the same dominant share of the amounts guaranteed to the leaf, after
// priority.
func TestFairJobs(t *testing.T) {
	leaf := withProperties("a", "application.sort.policy", "fair")
	leaf.Guaranteed = plimsoll.Resources{plimsoll.CPU: 8, plimsoll.Memory: 17}
	p := newFixture(t, leaf)
	jobs := []*fixtureJob{
		p.job("root.a", p.class(1, 1), 9), p.job("root.a", p.class(1, 4), 9),
		p.as("", "", 3).job("root.a", p.class(1, 0), 2),
	}
	p.wantPlaced(10, jobs, 5, 3, 2)
}

// Of jobs with the same largest share the one with the smaller second share goes first.
func TestFairJobsWithTheSameLargestShare(t *testing.T) {
	leaf := withProperties("a", "application.sort.policy", "fair")
	leaf.Guaranteed = plimsoll.Resources{plimsoll.CPU: 10, plimsoll.Memory: 20}
	p := newFixture(t, leaf)
	jobs := []*fixtureJob{p.job("root.a", p.class(1, 1), 9), p.job("root.a", p.class(1, 0), 9)}
	p.wantPlaced(3, jobs, 1, 2)
}

// The shares of fair jobs are parts of the whole cluster where the leaf has no guarantee. When the
// cluster grows all of them are in another order.
func TestFairJobsAreInAnotherOrderWhenTheClusterGrows(t *testing.T) {
	p := newFixture(t, withProperties("a", "application.sort.policy", "fair"))
	grow := func(cpu int64) {
		total, _ := p.names.Amounts(plimsoll.Resources{plimsoll.CPU: cpu, plimsoll.Memory: 1000})
		p.tree.SetTotal(&total)
	}
	grow(10)
	jobs := []*fixtureJob{p.job("root.a", p.class(1, 0), 9)} // the largest share of ten
	for memory := range int64(9) {
		jobs = append(jobs, p.job("root.a", p.class(0, 1+memory), 9))
	}
	p.wantPlaced(10, jobs, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	grow(1_000_000)
	p.wantPlaced(3, jobs, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

// Limits of a user and of a group hold together with the maximum of a queue, at all levels. A task
// that ends lets in the tasks that waited for it.
func TestLimitsOfOwners(t *testing.T) {
	leaf := plimsoll.QueueConfig{Name: "a", Limits: []plimsoll.QueueLimit{
		{Users: []string{"ann"}, Max: plimsoll.Resources{plimsoll.CPU: 2}},
		{Users: []string{"*"}, Max: plimsoll.Resources{plimsoll.CPU: 4}},
		{Groups: []string{"dev"}, Max: plimsoll.Resources{plimsoll.CPU: 5}},
	}}
	p := newFixture(t, leaf)
	c := p.class(1, 0)
	jobs := []*fixtureJob{
		p.as("ann", "dev", 0).job("root.a", c, 9), p.as("bob", "dev", 0).job("root.a", c, 9),
		p.as("cid", "ops", 0).job("root.a", c, 9),
	}
	p.wantPlaced(27, jobs, 2, 3, 4)
	p.cycle()
	p.want(jobs[0], "root.aann has too little cpu")
	p.want(jobs[1], "root.adev has too little cpu")
	p.tree.Refund(&jobs[0].Lane)
	p.wantPlaced(9, jobs, 1, 0, 0)
	leaf.Limits[0].Max, leaf.Limits[2].Max = plimsoll.Resources{plimsoll.CPU: 4}, nil
	p.tree.Configure(&plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{leaf}})
	p.wantPlaced(9, jobs, 2, 1, 0)
}

// The jobs of a user beyond its limit wait, and the highest priority goes in first.
func TestJobsOfAUserWaitForEachOther(t *testing.T) {
	limits := []plimsoll.QueueLimit{{Users: []string{"ann"}, MaxJobs: 1}}
	p := newFixture(t, plimsoll.QueueConfig{Name: "a", Limits: limits})
	c := p.class(1, 0)
	first, second := p.as("ann", "", 0).job("root.a", c, 1), p.job("root.a", c, 1)
	third, other := p.as("ann", "", 5).job("root.a", c, 1), p.as("bob", "", 0).job("root.a", c, 1)
	if !first.Admitted() || second.Admitted() || third.Admitted() || !other.Admitted() {
		t.Error("not the first of each user is admitted")
	}
	if k := second.Parked(); k == nil || k.User != "ann" || k.Code() != plimsoll.WaitUserMax {
		t.Errorf("the second waits for %+v", k)
	}
	p.leave(first)
	p.readmit()
	if second.Admitted() || !third.Admitted() {
		t.Error("the one of the highest priority is not the next")
	}
}
