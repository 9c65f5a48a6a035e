package queuerule_test

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queuerule"
)

type (
	queues = map[string]queuerule.Queue
	rule   = plimsoll.PlacementRule
	job    = queuerule.Job
)

var leaf, parent, drains = queuerule.Queue{Leaf: true}, queuerule.Queue{}, queuerule.Queue{Leaf: true, Draining: true}

// place compiles rules, and asks them for the queue of a job in a tree. The tree has root.
func place(t *testing.T, lists bool, rules []rule, tree queues, j job) (queuerule.Choice, error) {
	t.Helper()
	c := plimsoll.QueueConfig{Name: "root", Partition: &plimsoll.PartitionConfig{Rules: rules}}
	if lists {
		c.Queues = []plimsoll.QueueConfig{{Name: "listed", SubmitAccess: &plimsoll.AccessList{}}}
	}
	set, err := queuerule.Compile(&c)
	if err != nil {
		t.Fatal(err)
	}
	return set.Place(j, func(path string) (queuerule.Queue, bool) {
		q, found := tree[path]
		return q, found || path == "root"
	})
}

// shown prints a choice: the path, with a plus if the queue is to be made, or the error.
func shown(c queuerule.Choice, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case c.Make:
		return c.Path + "+"
	}
	return c.Path
}

func TestRulesChooseTheQueue(t *testing.T) {
	users := &rule{Name: "fixed", Value: "root.users"}
	byTag := []rule{{Name: "tag", Value: "Namespace", Create: true}}
	deny := func(users ...string) *plimsoll.RuleFilter { return &plimsoll.RuleFilter{Deny: true, Users: users} }
	allow := func(users ...string) *plimsoll.RuleFilter { return &plimsoll.RuleFilter{Users: users} }
	fixed := func(value string, f *plimsoll.RuleFilter) rule { return rule{Name: "Fixed", Value: value, Filter: f} }
	for _, c := range []struct {
		name  string
		rules []rule
		tree  queues
		job   job
		want  string // a part of it, if it is an error
	}{
		{"no rules, named", nil, queues{"root.a": leaf}, job{Queue: "root.a"}, "root.a"},
		{"no rules, short name", nil, queues{"root.t.a": leaf}, job{Queue: "T.a"}, "root.t.a"},
		{"no rules, no name", nil, queues{"root.default": leaf}, job{}, "root.default"},
		{"no rules, unknown", nil, queues{"root.default": leaf}, job{Queue: "root.x"}, `"root.x" does not exist`},
		{"no rules, parent", nil, queues{"root.p": parent}, job{Queue: "root.p"}, "not a leaf"},
		{"no rules, drains", nil, queues{"root.d": drains}, job{Queue: "d"}, "is being removed"},
		{
			"provided unknown goes to default",
			[]rule{{Name: "provided"}},
			queues{"root.default": leaf},
			job{Queue: "root.x"},
			"root.default",
		},
		{
			"provided unknown, no default",
			[]rule{{Name: "provided"}},
			queues{"root.a": leaf},
			job{Queue: "x"},
			`rule 1, provided: root.x does not exist, and the rule has no create; root.default does not exist`,
		},
		{
			"provided made",
			[]rule{{Name: "provided", Create: true}},
			queues{"root.p": parent},
			job{Queue: "root.p.x.y"},
			"root.p.x.y+",
		},
		{
			"not below a leaf",
			[]rule{{Name: "provided", Create: true}, fixed("b", nil)},
			queues{"root.a": leaf, "root.b": leaf},
			job{Queue: "root.a.x"},
			"root.b",
		},
		{
			"not below what drains",
			[]rule{{Name: "provided", Create: true}},
			queues{"root.a": {Draining: true}},
			job{Queue: "root.a.x"},
			"below root.a, which is being removed",
		},
		{
			"provided below a parent",
			[]rule{{Name: "provided", Create: true, Parent: users}},
			queues{"root.users": parent},
			job{Queue: "my.q"},
			"root.users.my_dot_q+",
		},
		{
			"full name passes the parent over",
			[]rule{{Name: "provided", Parent: users}},
			queues{"root.a": leaf},
			job{Queue: "root.a"},
			"root.a",
		},
		{
			"user below fixed",
			[]rule{{Name: "user", Create: true, Parent: users}},
			queues{"root.users": parent},
			job{Owner: "Ann.Lee"},
			"root.users.ann_dot_lee+",
		},
		{"user named root", []rule{{Name: "user", Create: true}}, nil, job{Owner: "root"}, "root.root+"},
		{
			"impossible user",
			[]rule{{Name: "user", Create: true}, fixed("a", nil)},
			queues{"root.a": leaf},
			job{Owner: "a b"},
			"no possible queue",
		},
		{"no user", []rule{{Name: "user", Create: true}}, nil, job{}, "no possible queue"},
		{
			"parent does not exist",
			[]rule{{Name: "user", Create: true, Parent: users}},
			nil,
			job{Owner: "ann"},
			"root.users does not exist",
		},
		{
			"parent made",
			[]rule{{Name: "user", Create: true, Parent: &rule{Name: "tag", Value: "team", Create: true}}},
			nil,
			job{Owner: "ann", Tags: map[string]string{"team": "x.y"}},
			"root.x_dot_y.ann+",
		},
		{
			"parent is a leaf",
			[]rule{{Name: "user", Create: true, Parent: users}, fixed("a", nil)},
			queues{"root.users": leaf, "root.a": leaf},
			job{Owner: "ann"},
			"cannot be followed",
		},
		{"tag", byTag, nil, job{Tags: map[string]string{"namespace": "dev"}}, "root.dev+"},
		{
			"tag in another case", byTag,
			queues{"root.dev": leaf},
			job{Tags: map[string]string{"NAMESPACE": "Dev"}},
			"root.dev",
		},
		{"tag with dots", byTag, nil, job{Tags: map[string]string{"namespace": "a.b"}}, "root.a_dot_b+"},
		{"tag with a full path", byTag, nil, job{Tags: map[string]string{"namespace": "root.a.b"}}, "root.a.b+"},
		{"no tag", byTag, nil, job{}, `has no tag "namespace"`},
		{"fixed", []rule{fixed("A", nil)}, queues{"root.a": leaf}, job{}, "root.a"},
		{"fixed without a value", []rule{fixed("", nil)}, nil, job{}, "has no value"},
		{"unknown rule", []rule{{Name: "magic"}}, queues{"root.default": leaf}, job{}, "there is no such rule"},
		{
			"unknown rule is not reached",
			[]rule{fixed("a", nil), {Name: "magic"}},
			queues{"root.a": leaf},
			job{},
			"root.a",
		},
		{
			"rule gives a parent",
			[]rule{fixed("p", nil), fixed("a", nil)},
			queues{"root.p": parent, "root.a": leaf},
			job{},
			"root.a",
		},
		{
			"rule gives a queue that drains",
			[]rule{fixed("d", nil), fixed("a", nil)},
			queues{"root.d": drains, "root.a": leaf},
			job{},
			"root.a",
		},
		{"recovery unforced", []rule{{Name: "recovery"}}, nil, job{}, "has no tag application.create.force"},
		{
			"forced",
			[]rule{fixed("a", nil)},
			nil,
			job{Tags: map[string]string{"application.create.force": "true"}},
			"root.@recovery@+",
		},
		{
			"forced, placed", nil,
			queues{"root.a": leaf},
			job{Queue: "a", Tags: map[string]string{"application.create.force": "true"}},
			"root.a",
		},
		{
			"too deep",
			[]rule{{Name: "provided", Create: true}},
			nil,
			job{Queue: "root" + strings.Repeat(".x", 16)},
			"at most 16 levels",
		},
		{"allow", []rule{fixed("a", allow("bob"))}, queues{"root.a": leaf}, job{Owner: "bob"}, "root.a"},
		{
			"allow others",
			[]rule{fixed("a", allow("bob"))},
			queues{"root.a": leaf},
			job{Owner: "ann"},
			`its filter leaves "ann" out`,
		},
		{"deny", []rule{fixed("a", deny("ann"))}, queues{"root.a": leaf}, job{Owner: "ann"}, "filter"},
		{"deny others", []rule{fixed("a", deny("ann"))}, queues{"root.a": leaf}, job{Owner: "bob"}, "root.a"},
		{"deny without names", []rule{fixed("a", deny())}, queues{"root.a": leaf}, job{Owner: "bob"}, "filter"},
		{"allow without names", []rule{fixed("a", allow())}, queues{"root.a": leaf}, job{Owner: "bob"}, "root.a"},
		{"expression", []rule{fixed("a", allow("^svc-.*"))}, queues{"root.a": leaf}, job{Owner: "svc-1"}, "root.a"},
		{
			"expression does not match",
			[]rule{fixed("a", allow("^svc-.*"))},
			queues{"root.a": leaf},
			job{Owner: "bob"},
			"filter",
		},
		{
			"of two entries none is an expression",
			[]rule{fixed("a", allow("b.*", "x"))},
			queues{"root.a": leaf},
			job{Owner: "bob"},
			"filter",
		},
		{
			"group",
			[]rule{fixed("a", &plimsoll.RuleFilter{Groups: []string{"dev"}})},
			queues{"root.a": leaf},
			job{Owner: "ann", Groups: []string{"ops", "dev"}},
			"root.a",
		},
	} {
		got := shown(place(t, false, c.rules, c.tree, c.job))
		if got != c.want && (!strings.HasPrefix(got, "queue: ") || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s; want %s", c.name, got, c.want)
		}
	}
}

func TestAccessLists(t *testing.T) {
	list := func(users ...string) *plimsoll.AccessList { return &plimsoll.AccessList{Users: users} }
	tree := queues{
		"root.p":   {Submit: list("ann"), Admin: list("adm")},
		"root.p.a": {Leaf: true, Submit: list("bob")},
		"root.g":   {Leaf: true, Submit: &plimsoll.AccessList{Groups: []string{"dev"}}},
		"root.all": {Leaf: true, Submit: &plimsoll.AccessList{Everybody: true}},
		"root.n":   leaf, "root.e": {Leaf: true, Submit: list()},
	}
	made := []rule{{Name: "provided", Create: true}}
	for _, c := range []struct {
		owner, queue, want string
		rules              []rule
	}{
		{"ann", "root.p.a", "root.p.a", nil},
		{"bob", "root.p.a", "root.p.a", nil},
		{"adm", "root.p.a", "root.p.a", nil},
		{"eve", "root.p.a", `"eve" may not submit to root.p.a`, nil},
		{"eve", "root.all", "root.all", nil},
		{"ann", "root.n", "may not submit", nil},
		{"ann", "root.e", "may not submit", nil},
		{"dave", "root.g", "root.g", nil},
		{"ann", "root.g", "may not submit", nil},
		{"ann", "root.p.new", "root.p.new+", made},
		{"bob", "root.p.new", "may not submit", made},
		{"eve", "root.p.a", "root.all", []rule{{Name: "provided"}, {Name: "fixed", Value: "all"}}},
	} {
		j := job{Owner: c.owner, Queue: c.queue}
		if c.owner == "dave" {
			j.Groups = []string{"dev"}
		}
		got := shown(place(t, true, c.rules, tree, j))
		refused := strings.Contains(c.want, "may not submit") // of an error, a part is wanted
		if got != c.want && !(refused && strings.Contains(got, c.want)) {
			t.Errorf("%s to %s: %s; want %s", c.owner, c.queue, got, c.want)
		}
	}
	if got := shown(place(t, false, nil, tree, job{Owner: "eve", Queue: "root.n"})); got != "root.n" {
		t.Errorf("without any list: %s", got)
	}
}

func TestCompileRefusesWhatIsTooLarge(t *testing.T) {
	filtered := func(user string) rule {
		return rule{Name: "user", Filter: &plimsoll.RuleFilter{Users: []string{user}}}
	}
	deep := rule{Name: "user"}
	for range queuerule.MaxRules {
		below := deep
		deep = rule{Name: "user", Parent: &below}
	}
	large := make([]rule, 99)
	for i := range large {
		large[i] = filtered("(a{100}){10}")
	}
	for want, rules := range map[string][]rule{
		"placementrules[1].filter.users":    {{Name: "user"}, filtered("(")},
		"bytes; at most 1024 are possible":  {filtered("^" + strings.Repeat("a", 1024))},
		"the 1600 rules that are possible":  {deep},
		"makes the expressions too large":   large,
		"neither a name nor a regular expr": {filtered("a{2000}")},
	} {
		_, err := queuerule.Compile(&plimsoll.QueueConfig{Partition: &plimsoll.PartitionConfig{Rules: rules}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
