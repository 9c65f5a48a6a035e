package plimsoll_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

func validJob() *plimsoll.JobSpec {
	return &plimsoll.JobSpec{
		ID: "wordcount", Owner: "alice", Queue: "root.batch",
		Groups: []plimsoll.GroupSpec{{
			Name: "map", Count: 20, Command: []string{"wc", "-w", "text"}, Env: map[string]string{"LANG": "C"},
			Resources: plimsoll.Resources{plimsoll.CPU: 500, plimsoll.Memory: 64 << 20},
			Retry:     plimsoll.RetryPolicy{Kind: plimsoll.RetryBackoff, Limit: 3}, MaxRuntime: 10 * time.Minute,
		}},
	}
}

func TestJobSpecValidateNamesTheFieldAndTheFix(t *testing.T) {
	type change = func(s *plimsoll.JobSpec, g *plimsoll.GroupSpec)
	for _, tc := range []struct {
		name   string
		change change
		field  string // empty: valid
		want   string
	}{
		{"the example", func(*plimsoll.JobSpec, *plimsoll.GroupSpec) {}, "", ""},
		{"no owner", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.Owner = "" }, "", ""},
		{"a group of no tasks", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Count = 0 }, "", ""},
		{"no resources", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Resources = nil }, "", ""},

		{"no id", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.ID = "" }, "job", "is empty; give a name"},
		{
			"an id with a slash", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.ID = "a/b" }, "job",
			"is not a possible id",
		},
		{
			"a long owner", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.Owner = strings.Repeat("a", 129) },
			"owner", "longer than 128",
		},
		{
			"an owner of two lines", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.Owner = "a\nb" }, "owner",
			"line break",
		},
		{
			"no possible queue", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.Queue = "root..batch" }, "queue",
			"is not a possible queue name",
		},
		{"many labels", func(
			s *plimsoll.JobSpec, _ *plimsoll.GroupSpec,
		) {
			s.Labels = numbered(65)
		}, "labels", "has 65 entries; at most 64"},
		{
			"a label without a key",
			func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.Labels = map[string]string{"": "x"} }, "labels",
			"a key has 1 to 128",
		},
		{"a long label", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) {
			s.Labels = map[string]string{"k": strings.Repeat("x", 1025)}
		}, "labels", "at most 1024"},
		{
			"a long token", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.Token = strings.Repeat("x", 129) },
			"token", "at most 128",
		},

		{"pieces of work", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
			g.Count, g.Indexes = 3, []int32{0, 17, 999_999}
		}, "", ""},
		{"more tasks than pieces", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
			g.Indexes = []int32{3, 17}
		}, "groups[0].count", "is 20, and indexes has 2 entries; make them equal, or leave count out"},
		{"a piece twice", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
			g.Count, g.Indexes = 2, []int32{17, 17}
		}, "groups[0].indexes[1]", "is 17, behind 17; give each number once, in rising order"},
		{"a piece below zero", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
			g.Count, g.Indexes = 1, []int32{-1}
		}, "groups[0].indexes[0]", "is -1; give a number from 0 to 999999"},
		{"many pieces", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
			g.Indexes = make([]int32, plimsoll.MaxIndexes+1)
		}, "groups[0].indexes", "has 100001 entries; at most 100000"},
		{
			"the job done again", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) {
				s.AgainOf = plimsoll.MakeUID(1, 2).String()
			}, "", "",
		},
		{
			"no uid", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.AgainOf = "wordcount" }, "againOf",
			`"wordcount" is not the uid of a job`,
		},

		{
			"no groups", func(s *plimsoll.JobSpec, _ *plimsoll.GroupSpec) { s.Groups = nil }, "groups",
			"give at least one group",
		},
		{"many groups", func(
			s *plimsoll.JobSpec, _ *plimsoll.GroupSpec,
		) {
			s.Groups = make([]plimsoll.GroupSpec, 101)
		}, "groups", "has 101 groups; at most 100"},
		{
			"a name twice", func(s *plimsoll.JobSpec, g *plimsoll.GroupSpec) { s.Groups = append(s.Groups, *g) },
			"groups[1].name", "already the name of groups[0]",
		},
		{"tasks beyond the bound together", func(s *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
			g.Count, g.Resources = plimsoll.MaxTasksPerJob, nil
			s.Groups = append(s.Groups, plimsoll.GroupSpec{Name: "b", Count: 1, Command: []string{"true"}})
		}, "groups", "add up to 1000001 tasks; at most 1000000"},
		{"more than can be counted in one group", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
			g.Count, g.Resources = 1000, plimsoll.Resources{plimsoll.Memory: plimsoll.MaxAmount}
		}, "groups[0].resources.memory", "1000 tasks of 8Pi are more than one job may ask for, 1Ei"},
		{"more than can be counted in two groups", func(s *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
			g.Count, g.Resources = 100, plimsoll.Resources{plimsoll.Memory: plimsoll.MaxAmount}
			other := *g
			other.Name = "reduce"
			s.Groups = append(s.Groups, other)
		}, "groups[1].resources.memory", "100 tasks of 8Pi are more than one job may ask for"},

		{
			"no group name", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Name = "" }, "groups[0].name",
			"is not a possible name",
		},
		{
			"a group name with a dot", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Name = "a.b" },
			"groups[0].name", "is not a possible name",
		},
		{"a negative count", func(
			_ *plimsoll.JobSpec, g *plimsoll.GroupSpec,
		) {
			g.Count = -1
		}, "groups[0].count", "is -1; give a number from 0 to 1000000"},
		{
			"a large count", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Count = 1_000_001 },
			"groups[0].count", "is 1000001",
		},
		{
			"no command", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Command = nil }, "groups[0].command",
			"give the program and its arguments",
		},
		{
			"an empty command", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Command = []string{""} },
			"groups[0].command", "is empty",
		},
		{
			"a zero byte in the command",
			func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Command = []string{"a", "\x00"} }, "groups[0].command",
			"zero byte",
		},
		{
			"a long command",
			func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Command = []string{strings.Repeat("a", 128<<10)} },
			"groups[0].command", "at most 131072",
		},
		{
			"a variable without a name",
			func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Env = map[string]string{"": "x"} }, "groups[0].env",
			"is not a name",
		},
		{
			"a variable with =",
			func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Env = map[string]string{"A=B": "x"} }, "groups[0].env",
			"is not a name",
		},
		{
			"a variable of ours",
			func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Env = map[string]string{"PLIMSOLL_NODE": "x"} },
			"groups[0].env.PLIMSOLL_NODE", "set by the agent",
		},
		{"a large environment", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
			g.Env = map[string]string{"A": strings.Repeat("x", 128<<10)}
		}, "groups[0].env", "at most 131072"},
		{
			"a zero byte in the folder", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.WorkDir = "/a\x00" },
			"groups[0].workDir", "zero byte",
		},
		{
			"a long user", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.User = strings.Repeat("x", 4097) },
			"groups[0].user", "longer than 4096",
		},
		{
			"negative resources", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Resources[plimsoll.CPU] = -1 },
			"groups[0].resources.cpu", "is negative",
		},
		{
			"an unknown kind of retry", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Retry.Kind = 9 },
			"groups[0].retry.policy", "use none, immediate, delayed or backoff",
		},
		{
			"a negative limit", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Retry.Limit = -1 },
			"groups[0].retry.limit", "is negative",
		},
		{
			"a negative first delay", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Retry.InitialDelay = -1 },
			"groups[0].retry.initialDelay", "is negative",
		},
		{
			"a negative longest delay", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.Retry.MaxDelay = -1 },
			"groups[0].retry.maxDelay", "is negative",
		},
		{
			"a negative runtime", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.MaxRuntime = -1 },
			"groups[0].maxRuntime", "give a duration such as 10m",
		},
		{
			"a negative grace", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.KillGrace = -1 },
			"groups[0].killGrace", "is negative",
		},
		{
			"a negative log limit", func(_ *plimsoll.JobSpec, g *plimsoll.GroupSpec) { g.LogLimit = -1 },
			"groups[0].logLimit", "is negative",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := validJob()
			tc.change(s, &s.Groups[0])
			wantInvalid(t, s.Validate(), tc.field, tc.want)
		})
	}
}

func numbered(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m[fmt.Sprint("k", i)] = "v"
	}
	return m
}

func TestValidateID(t *testing.T) {
	for _, good := range []string{"a", "0", "word-count_2.v1", "A.b.c", strings.Repeat("x", 128)} {
		wantInvalid(t, plimsoll.ValidateID("job", good), "", "")
	}
	for _, bad := range []string{
		"", ".", "-a", "_a", "a.", "a..b", "a b", "a/b", "ä", "a\x00", strings.Repeat("x", 129),
	} {
		wantInvalid(t, plimsoll.ValidateID("job", bad), "job", "")
	}
}

func TestTaskIDIsTakenApartFromTheRight(t *testing.T) {
	if got := plimsoll.TaskID("etl.v2", "map", 7); got != "etl.v2.map.7" {
		t.Errorf("got %q", got)
	}
}

func TestRetryPolicyDelay(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	for _, tc := range []struct {
		name   string
		policy plimsoll.RetryPolicy
		want   map[int32]time.Duration // keyed by the number of the failure
	}{
		{"none", plimsoll.RetryPolicy{}, map[int32]time.Duration{1: 0, 9: 0}},
		{
			"immediate does not wait",
			plimsoll.RetryPolicy{Kind: plimsoll.RetryImmediate, InitialDelay: time.Hour},
			map[int32]time.Duration{1: 0, 9: 0},
		},
		{
			"delayed waits a second",
			plimsoll.RetryPolicy{Kind: plimsoll.RetryDelayed},
			map[int32]time.Duration{1: time.Second, 9: time.Second},
		},
		{
			"delayed waits as long as asked",
			plimsoll.RetryPolicy{Kind: plimsoll.RetryDelayed, InitialDelay: time.Minute},
			map[int32]time.Duration{1: time.Minute, 9: time.Minute},
		},
		{
			"backoff doubles up to five minutes",
			plimsoll.RetryPolicy{Kind: plimsoll.RetryBackoff},
			map[int32]time.Duration{
				1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute,
				1 << 30: 5 * time.Minute,
			},
		},
		{
			"backoff doubles up to what is asked",
			plimsoll.RetryPolicy{
				Kind: plimsoll.RetryBackoff, InitialDelay: 3 * time.Second, MaxDelay: 10 * time.Second,
			},
			map[int32]time.Duration{1: 3 * time.Second, 2: 6 * time.Second, 3: 10 * time.Second, 4: 10 * time.Second},
		},
		{
			"the longest delay also bounds the first",
			plimsoll.RetryPolicy{Kind: plimsoll.RetryBackoff, InitialDelay: time.Hour, MaxDelay: time.Minute},
			map[int32]time.Duration{1: time.Minute},
		},
		{
			"a long bound does not overflow",
			plimsoll.RetryPolicy{Kind: plimsoll.RetryBackoff, MaxDelay: 2 * century},
			map[int32]time.Duration{32: 1 << 31 * time.Second, 40: 2 * century, 1 << 20: 2 * century},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n, want := range tc.want {
				if got := tc.policy.Delay(n); got != want {
					t.Errorf("after failure %d: got %v, want %v", n, got, want)
				}
			}
		})
	}
}

func TestWordsThatAreNoStates(t *testing.T) {
	if plimsoll.ParseJobState("running") != 0 || plimsoll.ParseTaskState("") != 0 || plimsoll.ParseNodeMode("x") != 0 {
		t.Error("a word that is no state is read as one")
	}
	if _, ok := plimsoll.ParseRetryKind("often"); ok {
		t.Error("a word that is no kind of retry is read as one")
	}
}

func TestWhichStatesHoldANodeAndWhichAreTheEnd(t *testing.T) {
	for state, want := range map[plimsoll.TaskState]bool{
		plimsoll.TaskPending: false, plimsoll.TaskBound: true, plimsoll.TaskStarting: true, plimsoll.TaskRunning: true,
		plimsoll.TaskStopping: true, plimsoll.TaskFinished: false,
	} {
		if got := state.OnNode(); got != want {
			t.Errorf("%s on a node: %v, want %v", state, got, want)
		}
	}
	for state := plimsoll.JobNew; state.Known(); state++ {
		want := strings.Contains("Completed Rejected Failed Expired", state.String())
		if got := state.Ended(); got != want {
			t.Errorf("%s has ended: %v, want %v", state, got, want)
		}
	}
}

// A failure counts against the retry limit only if it is the task's own fault.
func TestTaskResultCharged(t *testing.T) {
	for result, want := range map[plimsoll.TaskResult]bool{
		plimsoll.ResultNone: false, plimsoll.ResultSucceeded: false, plimsoll.ResultKilled: false,
		plimsoll.ResultEvicted:   false,
		plimsoll.ResultPreempted: false, plimsoll.ResultLost: false, plimsoll.ResultNodeFault: false,
		plimsoll.ResultFailed: true, plimsoll.ResultOutOfMemory: true, plimsoll.ResultOutOfDisk: true,
		plimsoll.ResultTimedOut:     true,
		plimsoll.ResultNeverStarted: true, plimsoll.ResultUnknownExit: true,
	} {
		if got := result.Charged(); got != want {
			t.Errorf("%q is charged: %v, want %v", result, got, want)
		}
	}
}

func TestTaskCountsAddUp(t *testing.T) {
	a := plimsoll.TaskCounts{Pending: 1, Bound: 2, Starting: 3, Running: 4, Stopping: 5, Succeeded: 6, Failed: 7}
	if got := a.Total(); got != 28 {
		t.Errorf("total %d, want 28", got)
	}
	if got := a.Plus(a); got.Total() != 56 || got.Succeeded != 12 {
		t.Errorf("twice the counts is %+v", got)
	}
}

func TestNodeValidate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*plimsoll.Node)
		field  string
		want   string
	}{
		{"a usual node", func(*plimsoll.Node) {}, "", ""},
		{"a node with many disks", func(n *plimsoll.Node) { n.Capacity[plimsoll.Disk] = 1 << 50 }, "", ""},
		{"no id", func(n *plimsoll.Node) { n.ID = "" }, "node", "is empty"},
		{
			"a long address", func(n *plimsoll.Node) { n.Address = strings.Repeat("x", 257) }, "address",
			"longer than 256",
		},
		{"no incarnation", func(n *plimsoll.Node) { n.Incarnation = 0 }, "incarnation", "counts its starts from 1"},
		{
			"a negative capacity", func(n *plimsoll.Node) { n.Capacity[plimsoll.CPU] = -1 }, "capacity.cpu",
			"is negative",
		},
		{"many attributes", func(
			n *plimsoll.Node,
		) {
			n.Attributes = numbered(257)
		}, "attributes", "has 257 entries; at most 256"},
		{
			"a long attribute",
			func(n *plimsoll.Node) { n.Attributes = map[string]string{"k": strings.Repeat("x", 1025)} }, "attributes",
			"at most 1024",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &plimsoll.Node{
				ID: "n1", Address: "127.0.0.1:9081", Incarnation: 1, Attributes: map[string]string{"os": "linux"},
				Capacity: plimsoll.Resources{plimsoll.CPU: 2000, plimsoll.Memory: 24 << 30},
			}
			tc.change(n)
			wantInvalid(t, n.Validate(), tc.field, tc.want)
		})
	}
}
