package plimsoll_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

type amounts = plimsoll.Resources

// tree returns root.a.{b,c}, which each case changes.
func tree() (root, a, b, c *plimsoll.QueueConfig) {
	root = &plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{
		{Name: "a", Queues: []plimsoll.QueueConfig{{Name: "b"}, {Name: "c"}}},
	}}
	a = &root.Queues[0]
	return root, a, &a.Queues[0], &a.Queues[1]
}

func TestQueueConfigValidateNamesTheQueueAndTheFix(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(root, a, b, c *plimsoll.QueueConfig)
		field  string // empty: valid
		want   string
	}{
		{"a tree without limits", func(_, _, _, _ *plimsoll.QueueConfig) {}, "", ""},
		{"limits that fit", func(_, a, b, c *plimsoll.QueueConfig) {
			a.Guaranteed, a.Max = amounts{"cpu": 4000}, amounts{"cpu": 8000}
			b.Guaranteed, b.Max = amounts{"cpu": 2000}, amounts{"cpu": 8000}
			c.Guaranteed = amounts{"cpu": 2000}
		}, "", ""},
		{"every sign of YuniKorn's names", func(_, _, b, _ *plimsoll.QueueConfig) { b.Name = "_a:B#/@-9" }, "", ""},

		{"another top", func(
			root, _, _, _ *plimsoll.QueueConfig,
		) {
			root.Name = "top"
		}, "queues", `is named "top"; it must be "root"`},
		{
			"root with limits", func(root, _, _, _ *plimsoll.QueueConfig) { root.Max = amounts{"cpu": 1} },
			"root.resources", "remove them",
		},
		{
			"a name with a dot", func(_, _, b, _ *plimsoll.QueueConfig) { b.Name = "x.y" }, "root.a.queues",
			"is not a possible queue name",
		},
		{
			"no name", func(_, _, b, _ *plimsoll.QueueConfig) { b.Name = "" }, "root.a.queues",
			"is not a possible queue name",
		},
		{
			"a long name", func(_, _, b, _ *plimsoll.QueueConfig) { b.Name = strings.Repeat("x", 65) }, "root.a.queues",
			"1 to 64",
		},
		{"a name twice", func(_, _, b, c *plimsoll.QueueConfig) { c.Name = b.Name }, "root.a.b", "stands twice"},
		{
			"a name twice, but for its case", func(_, _, _, c *plimsoll.QueueConfig) { c.Name = "B" }, "root.a.B",
			"stands twice",
		},
		{
			"a negative amount", func(_, _, b, _ *plimsoll.QueueConfig) { b.Max = amounts{"cpu": -1} },
			"root.a.b.resources.max.cpu", "is negative",
		},
		{
			"a negative guarantee", func(_, _, b, _ *plimsoll.QueueConfig) { b.Guaranteed = amounts{"cpu": -1} },
			"root.a.b.resources.guaranteed.cpu", "is negative",
		},
		{
			"a negative number of jobs", func(_, _, b, _ *plimsoll.QueueConfig) { b.MaxJobs = -1 },
			"root.a.b.maxapplications", "give zero for no limit",
		},
		{
			"a negative number of tasks", func(_, _, b, _ *plimsoll.QueueConfig) { b.MaxTasks = -1 },
			"root.a.b.maxtasks", "give zero for no limit",
		},
		{"a maximum above the parent's", func(_, a, b, _ *plimsoll.QueueConfig) {
			a.Max, b.Max = amounts{"memory": 1 << 30}, amounts{"memory": 2 << 30}
		}, "root.a.b.resources.max.memory", "is 2Gi, more than the 1Gi of the queue above"},
		{"a guarantee above the own maximum", func(_, _, b, _ *plimsoll.QueueConfig) {
			b.Guaranteed, b.Max = amounts{"cpu": 2000}, amounts{"cpu": 1000}
		}, "root.a.b.resources.guaranteed.cpu", "is 2, more than the maximum of 1"},
		{"a guarantee above the parent's maximum", func(_, a, b, _ *plimsoll.QueueConfig) {
			a.Max, b.Guaranteed = amounts{"cpu": 1000}, amounts{"cpu": 2000}
		}, "root.a.b.resources.guaranteed.cpu", "more than the maximum of 1"},
		{"guarantees above the parent's together", func(_, a, b, c *plimsoll.QueueConfig) {
			a.Guaranteed, b.Guaranteed, c.Guaranteed = amounts{"cpu": 3000}, amounts{"cpu": 2000}, amounts{"cpu": 2000}
		}, "root.a.resources.guaranteed.cpu", "is 3, less than the 4 that its queues are guaranteed together"},
		{"guarantees above the parent's maximum together", func(_, a, b, c *plimsoll.QueueConfig) {
			a.Max, b.Guaranteed, c.Guaranteed = amounts{"cpu": 3000}, amounts{"cpu": 2000}, amounts{"cpu": 2000}
		}, "root.a.resources.max.cpu", "is 3, less than the 4"},
		{"guarantees that cannot be added", func(_, _, b, c *plimsoll.QueueConfig) {
			b.Guaranteed, c.Guaranteed = amounts{"memory": plimsoll.MaxAmount}, amounts{"memory": 1}
		}, "root.a.queues", "more memory together than the largest amount, 8Pi"},
		{"a guarantee through a level that states none", func(root, a, _, _ *plimsoll.QueueConfig) {
			root.Queues = []plimsoll.QueueConfig{{
				Name: "p", Guaranteed: amounts{"cpu": 2000}, Queues: []plimsoll.QueueConfig{*a},
			}}
			below := root.Queues[0].Queues[0].Queues
			below[0].Guaranteed, below[1].Guaranteed = amounts{"cpu": 2000}, amounts{"cpu": 1000}
		}, "root.p.resources.guaranteed.cpu", "is 2, less than the 3 that its queues are guaranteed together"},
		{"a guarantee of a kind that the level between does not state", func(root, a, _, _ *plimsoll.QueueConfig) {
			root.Queues = []plimsoll.QueueConfig{{
				Name: "p", Guaranteed: amounts{"cpu": 2000}, Queues: []plimsoll.QueueConfig{*a},
			}}
			between := &root.Queues[0].Queues[0]
			between.Guaranteed, between.Queues[0].Guaranteed = amounts{"memory": 1}, amounts{"cpu": 3000}
		}, "", ""},
		{"jobs of a child that states none", func(_, a, b, _ *plimsoll.QueueConfig) {
			a.MaxJobs, b.MaxJobs = 3, 3
		}, "root.a.c.maxapplications", "is missing, but the queue above has 3; give 1 to 3"},
		{"more jobs than the parent's", func(_, a, b, c *plimsoll.QueueConfig) {
			a.MaxJobs, b.MaxJobs, c.MaxJobs = 3, 3, 4
		}, "root.a.c.maxapplications", "is 4, more than the 3 of the queue above"},
		{"a dynamic child, which is not compared", func(_, a, b, c *plimsoll.QueueConfig) {
			a.MaxJobs, a.Max, b.MaxJobs = 3, amounts{"cpu": 1000}, 3
			c.Dynamic, c.Max = true, amounts{"cpu": 2000}
		}, "", ""},
		{"settings of the whole tree below root", func(_, a, _, _ *plimsoll.QueueConfig) {
			a.Partition = &plimsoll.PartitionConfig{}
		}, "root.a", "which only root has"},
		{"an order that is none", func(_, a, _, _ *plimsoll.QueueConfig) {
			a.Properties = map[string]string{"order": "loose"}
		}, "root.a.properties.order", `is "loose"; write strict or default`},
		{"a policy of YuniKorn's that is none", func(_, a, _, _ *plimsoll.QueueConfig) {
			a.Properties = map[string]string{"application.sort.policy": "lifo"}
		}, "", ""},
		{"too many properties", func(_, a, _, _ *plimsoll.QueueConfig) {
			a.Properties = map[string]string{}
			for i := range 101 {
				a.Properties[fmt.Sprint("p", i)] = "v"
			}
		}, "root.a.properties", "at most 100"},
		{"a list of one star that is not for everybody", func(_, a, _, _ *plimsoll.QueueConfig) {
			a.SubmitAccess = &plimsoll.AccessList{Users: []string{"*"}}
		}, "root.a.submitacl", "stands for everybody"},
		{"a name with a comma", func(_, a, _, _ *plimsoll.QueueConfig) {
			a.AdminAccess = &plimsoll.AccessList{Groups: []string{"a,b"}}
		}, "root.a.adminacl", "without space or comma"},
		{"a deep tree", func(_, _, b, _ *plimsoll.QueueConfig) {
			for q, depth := b, 3; depth < plimsoll.MaxQueueDepth+1; q, depth = &q.Queues[0], depth+1 {
				q.Queues = []plimsoll.QueueConfig{{Name: "d"}}
			}
		}, "root.a.b" + strings.Repeat(".d", 14), "is deeper than 16 levels"},
		{"a wide tree", func(_, a, _, _ *plimsoll.QueueConfig) {
			a.Queues = make([]plimsoll.QueueConfig, 101)
			for i := range a.Queues {
				a.Queues[i] = plimsoll.QueueConfig{Name: fmt.Sprint("q", i), Queues: manyQueues(100)}
			}
		}, "queues", "there are more than 10000 queues"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, a, b, c := tree()
			tc.change(root, a, b, c)
			wantInvalid(t, root.Validate(), tc.field, tc.want)
		})
	}
}

func manyQueues(n int) []plimsoll.QueueConfig {
	list := make([]plimsoll.QueueConfig, n)
	for i := range list {
		list[i].Name = fmt.Sprint("q", i)
	}
	return list
}

func TestDefaultQueuesAreValid(t *testing.T) {
	config := plimsoll.DefaultQueues()
	wantInvalid(t, config.Validate(), "", "")
}

func TestValidateQueuePath(t *testing.T) {
	for _, good := range []string{"root", "root.batch", "root.a.b.c", "root._x", "root" + strings.Repeat(".a", 15)} {
		wantInvalid(t, plimsoll.ValidateQueuePath("queue", good), "", "")
	}
	for bad, want := range map[string]string{
		"":                                "is not a full queue path",
		"batch":                           "write for example root.batch",
		"Root.batch":                      "is not a full queue path",
		"root.":                           "is not a possible queue name",
		"root..a":                         "is not a possible queue name",
		"root.a b":                        "is not a possible queue name",
		"root" + strings.Repeat(".a", 16): "is deeper than 16 levels",
	} {
		wantInvalid(t, plimsoll.ValidateQueuePath("queue", bad), "queue", want)
	}
}

// An error shows the beginning of a long text alone: it goes into answers, events and logs.
func TestErrorsOfLongNamesAreShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20) + "!"
	below := plimsoll.QueueConfig{
		Name: plimsoll.RootQueue, Parent: true, Queues: []plimsoll.QueueConfig{{Name: long}},
	}
	root := plimsoll.QueueConfig{Name: long}
	for name, err := range map[string]error{
		"a queue":         below.Validate(),
		"the top queue":   root.Validate(),
		"a stored one":    root.ValidateStored(),
		"a path":          plimsoll.ValidateQueuePath("queue", long),
		"a path too deep": plimsoll.ValidateQueuePath("queue", "root"+strings.Repeat(".a", 1<<20)),
		"an id":           plimsoll.ValidateID("id", long),
	} {
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || len(err.Error()) > 500 {
			t.Errorf("%s: the error has %d bytes: %.200v", name, len(err.Error()), err)
		}
	}
}
