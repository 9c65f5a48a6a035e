package queue_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// A dynamic queue stays over a reload while it holds a job, and disappears with its last one. It
// becomes an ordinary queue when the configuration names it, and drains when the queue above goes.
func TestDynamicQueues(t *testing.T) {
	users := plimsoll.QueueConfig{Name: "users", Parent: true}
	p := newFixture(t, users, plimsoll.QueueConfig{Name: "other"})
	add := func(name string) {
		changes := p.tree.AddDynamic(p.tree.Find("root.users"), &plimsoll.QueueConfig{
			Name: name, Max: plimsoll.Resources{"cpu": 2},
		})
		if len(changes) != 1 || changes[0].Queue != p.tree.Find("root.users."+name) || !changes[0].Queue.Dynamic {
			t.Fatalf("the changes are %v", changes)
		}
	}
	configure := func(queues ...plimsoll.QueueConfig) (text string) {
		for _, c := range p.tree.Configure(&plimsoll.QueueConfig{Name: "root", Parent: true, Queues: queues}) {
			text += fmt.Sprint(c.Kind, c.Queue.Path, " ")
		}
		return text
	}
	add("ann")
	add("bob")
	j := p.job("root.users.ann", p.class(1, 0), 3)
	p.cycle()
	if got := configure(users, plimsoll.QueueConfig{Name: "other"}); got != "5root.users.bob " {
		t.Errorf("a reload changed %s", got)
	}
	ann := p.tree.Find("root.users.ann")
	if ann.Draining || ann.Running != 2 || p.tree.Config().Queues[1].Queues[0].Max["cpu"] != 2 {
		t.Errorf("%+v", p.tree.Config())
	}
	if got := configure(plimsoll.QueueConfig{Name: "other"}); got != "4root.users.ann 4root.users " {
		t.Errorf("without the queue above: %s", got)
	}
	named := users
	named.Queues = []plimsoll.QueueConfig{{Name: "ann"}}
	if configure(named); ann.Draining || ann.Dynamic {
		t.Error("a dynamic queue that is configured drains, or is still dynamic")
	}
	p.tree.Refund(&j.Lane)
	p.tree.Refund(&j.Lane)
	p.leave(j)
	if len(p.tree.Tidy(ann)) != 0 {
		t.Error("a configured queue disappeared")
	}
}

// A copy answers for a queue without leaves: it is asked for a leaf that is to be made there.
func TestACopyAnswersForAParent(t *testing.T) {
	p := newFixture(t, plimsoll.QueueConfig{
		Name: "users", Parent: true, Max: plimsoll.Resources{"cpu": 2},
		Limits: []plimsoll.QueueLimit{{Users: []string{"ann"}, Max: plimsoll.Resources{"cpu": 1}}},
	})
	tree := p.tree.Copy()
	users := tree.Find("root.users")
	asked, _ := p.names.Amounts(plimsoll.Resources{"cpu": 2})
	for user, want := range map[string]string{"ann": "ann", "bob": ""} {
		owner := queue.Owner{User: user}
		if full := tree.Full(users, owner); full != nil {
			t.Errorf("%s: %+v is full", user, full)
		}
		by, _ := tree.RefusesOwner(users, owner, &asked)
		if (by == nil) != (want == "") || by != nil && by.User != want {
			t.Errorf("%s: %+v refuses", user, by)
		}
	}
}
