package state_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// smallest holds the limits of the smallest store for which the guarantees hold.
var smallest = state.Limits{Ops: 64, Bytes: 1 << 20}

func numbered(length, i int) string { return fmt.Sprintf("x%0*d", length-1, i) }

func amounts(n int) plimsoll.Resources {
	r := plimsoll.Resources{}
	for i := range n {
		r[numbered(60, i)] = 1
	}
	return r
}

func small(id, queue string) *plimsoll.JobSpec {
	return &plimsoll.JobSpec{
		ID: id, Queue: queue, Groups: []plimsoll.GroupSpec{{Name: "g", Count: 1, Command: []string{"true"}}},
	}
}

func manyGroups() *plimsoll.JobSpec {
	// each group's cause of waiting may name the queue
	spec := small("groups", "root."+strings.Repeat(numbered(64, 1)+".", 14)+"leaf")
	one := spec.Groups[0]
	one.Resources = amounts(5)
	spec.Groups = nil
	for i := range plimsoll.MaxGroups {
		one.Name = fmt.Sprint("g", i)
		spec.Groups = append(spec.Groups, one)
	}
	return spec
}

func attributes() map[string]string {
	m := map[string]string{}
	for i := range 256 {
		m[numbered(100, i)] = strings.Repeat("v", 1024)
	}
	return m
}

// tree returns a root with a number of queues beside root.default, each a chain of a given depth.
func tree(queues, depth int, name func(i int) string) *plimsoll.QueueConfig {
	c := plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{{Name: "default"}}}
	for i := range queues {
		q := plimsoll.QueueConfig{Name: name(i)}
		for range depth - 1 {
			q = plimsoll.QueueConfig{Name: q.Name, Queues: []plimsoll.QueueConfig{q}}
		}
		c.Queues = append(c.Queues, q)
	}
	return &c
}

// An object that does not fit in a batch is refused with the field, the size and the limit. Nothing
// changes.
func TestWhatNoBatchHasRoomForIsRefused(t *testing.T) {
	submit := func(spec *plimsoll.JobSpec) func(*state.State) error {
		return func(s *state.State) error { _, err := s.Submit(spec, false); return err }
	}
	apply := func(set []plimsoll.Policy, dryRun bool) func(*state.State) error {
		return func(s *state.State) error { _, err := s.ApplyPolicies(set, dryRun); return err }
	}
	register := func(n plimsoll.Node) func(*state.State) error {
		n.ID, n.Incarnation = "n2", 1
		return func(s *state.State) error { _, err := s.Register(&n, "gw"); return err }
	}
	configure := func(c *plimsoll.QueueConfig) func(*state.State) error {
		return func(s *state.State) error { return s.SetQueueConfig(c) }
	}
	long := small("env", "root.default")
	long.Groups = append(long.Groups, long.Groups[0])
	long.Groups[1].Name, long.Groups[1].Env = "h", map[string]string{"BIG": strings.Repeat("x", 100_000)}
	var actions []plimsoll.Policy
	for i := range 40 {
		actions = append(actions, action(fmt.Sprint("a", i)))
	}
	pairs := taskQOS("large")
	pairs.TaskQOS.Match = []plimsoll.Requirement{
		{Scope: plimsoll.ScopeOwner}, {Scope: plimsoll.ScopeOwner}, {Scope: plimsoll.ScopeOwner},
	}
	for i := range pairs.TaskQOS.Match {
		for k := range plimsoll.MaxPolicyValues {
			pairs.TaskQOS.Match[i].Values = append(pairs.TaskQOS.Match[i].Values, numbered(128, k))
		}
	}
	report := &plimsoll.NodeReport{}
	for range plimsoll.MaxQOSEvents {
		report.Events = append(
			report.Events,
			plimsoll.QOSEvent{Kind: plimsoll.QOSFailed, Message: strings.Repeat("m", plimsoll.MaxQOSMessage)},
		)
	}
	networks := plimsoll.NodeFacts{Networks: map[string]bool{}, Traits: map[string]plimsoll.Trait{}}
	for i := range plimsoll.MaxTraits {
		for k := range plimsoll.MaxTraitWords {
			trait := networks.Traits[fmt.Sprint(i)]
			trait.Words = append(trait.Words, numbered(100, k))
			networks.Traits[fmt.Sprint(i)] = trait
		}
	}
	for _, c := range []struct {
		name string
		do   func(*state.State) error
		want string
	}{
		{"a specification", submit(long), "groups[1]: makes the specification 100"},
		{
			"a dry run of it", func(s *state.State) error { return s.CheckSize(long) },
			"groups[1]: makes the specification 100",
		},
		{
			"the status of many groups", func(s *state.State) error { return s.CheckSize(manyGroups()) },
			"groups: have a status of up to",
		},
		{
			"the attributes of a node", register(plimsoll.Node{Attributes: attributes()}),
			"attributes: makes what is known of the node",
		},
		{"the facts of a node", register(plimsoll.Node{Facts: networks}), "facts: makes what is known of the node"},
		{
			"the report of a node", func(s *state.State) error { return s.ReportNode("n1", 1, 1, report) },
			"events: take",
		},
		{"many policies", apply(actions, false), "policies: there are 40; at most 31"},
		{"a trial of many policies", apply(actions, true), "policies: there are 40; at most 31"},
		{"a large policy", apply([]plimsoll.Policy{action("a"), pairs}, false), "make TaskQOS large shorter"},
		{"a large tree", configure(tree(2000, 1, func(i int) string { return numbered(64, i) })), "queues: take"},
		{
			"a tree with many events", configure(tree(60, 15, func(i int) string { return numbered(64, i) })),
			"queues: have events of",
		},
	} {
		s := state.New(state.Config{Limits: smallest}, plimsoll.DefaultQueues())
		s.Begin(1e9, 1)
		if _, err := s.Register(&plimsoll.Node{ID: "n1", Incarnation: 1}, "gw"); err != nil {
			t.Fatal(err)
		}
		var changes state.Changes
		s.Take(&changes)
		s.Begin(2e9, 2)
		if err := c.do(s); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "at most") {
			t.Errorf("%s: %.300v, want %q with the limit", c.name, err, c.want)
		}
		if s.Take(&changes); !changes.Empty() {
			t.Errorf("%s: it was refused and has changed something", c.name)
		}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Draining queues are stored with the others, so they count: repeated changes of the tree cannot
// accumulate them.
func TestQueuesThatDrainCountWhenTheTreeIsReplaced(t *testing.T) {
	s := state.New(state.Config{Limits: smallest}, plimsoll.DefaultQueues())
	const queues = 80
	round := func(n int) error {
		name := func(i int) string { return fmt.Sprintf("q%d-%d", n, i) }
		c := tree(queues, 1, name)
		for i := range c.Queues[1:] {
			c.Queues[1+i].Max = amounts(13)
		}
		s.Begin(int64(n+1)*1e9, uint64(n+1))
		if err := s.SetQueueConfig(c); err != nil {
			return err
		}
		for i := range queues {
			if _, err := s.Submit(small(name(i), "root."+name(i)), false); err != nil {
				t.Fatal(err)
			}
		}
		s.Take(new(state.Changes))
		return nil
	}
	if err := round(0); err != nil {
		t.Fatal(err)
	}
	err := round(1)
	if err == nil || !strings.Contains(err.Error(), "wait until no queue drains") {
		t.Fatalf("the tree was replaced: %v", err)
	}
	for i := range queues {
		if err := s.Kill(fmt.Sprintf("q0-%d", i), ""); err != nil {
			t.Fatal(err)
		}
	}
	s.Continue(state.Budget{})
	s.Take(new(state.Changes))
	if err := round(1); err != nil {
		t.Fatalf("no queue drains: %v", err)
	}
}

// A first start with a tree that does not fit in a batch is refused too.
func TestLargeTreeIsRefusedAtTheFirstStart(t *testing.T) {
	loader := state.NewLoader(
		state.Config{Limits: smallest}, *tree(2000, 1, func(i int) string { return numbered(64, i) }),
	)
	if _, err := loader.End(1); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Fatalf("the tree was taken: %v", err)
	}
}

// A node whose record is nearly full drops the evictions that would make it too large.
func TestEvictionsTakeOnlyTheRoomThatIsLeft(t *testing.T) {
	s := state.New(state.Config{Limits: smallest}, plimsoll.DefaultQueues())
	node := plimsoll.Node{
		ID: "n1", Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 1_000_000}, Attributes: map[string]string{},
	}
	s.Begin(1, 1)
	for i := 0; ; i++ {
		node.Attributes[numbered(100, i)] = strings.Repeat("v", 1000)
		if _, err := s.Register(&node, "gw"); err != nil {
			delete(node.Attributes, numbered(100, i))
			break
		}
		node.Attributes = maps.Clone(node.Attributes)
	}
	n := s.Node("n1")
	for i := range 30 {
		s.Begin(int64(i+1)*1e9, uint64(i+1))
		id := numbered(128, i)
		if _, err := s.Submit(small(id, "root.default"), false); err != nil {
			t.Fatal(err)
		}
		s.Continue(state.Budget{})
		ref, _ := s.FindTask(id, "g", 0)
		s.Bind(ref, n.Slot)
		s.Report(
			n, id, "g", 0,
			&plimsoll.TaskReport{Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultEvicted},
		)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		s.Take(new(state.Changes))
	}
	if k := len(n.Evictions); k == 0 || k >= 30 || n.Evictions[k-1].Job != numbered(128, 29) {
		t.Fatalf("%d groups are kept away, want the last of those that there is room for", k)
	}
}
