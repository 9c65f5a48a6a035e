package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// withUsers is a cell with limits of users and groups, and with jobs of two users and
// one without an owner.
func withUsers(t *testing.T) *cell {
	t.Helper()
	config := plimsoll.QueueConfig{
		Name: "root", Parent: true,
		Limits: []plimsoll.QueueLimit{{Users: []string{"*"}, Groups: []string{"*"}, MaxJobs: 9}},
		Partition: &plimsoll.PartitionConfig{Rules: []plimsoll.PlacementRule{
			{Name: "Provided"},
			{
				Name: "tag", Value: "namespace", Create: true,
				Parent: &plimsoll.PlacementRule{Name: "fixed", Value: "root.p"},
				Filter: &plimsoll.RuleFilter{Deny: true, Users: []string{"^a.*"}, Groups: []string{"ops", "dev"}},
			},
		}},
		Queues: []plimsoll.QueueConfig{{Name: "p", Parent: true, Limits: []plimsoll.QueueLimit{{
			Users: []string{"ann"}, Groups: []string{"dev"}, Max: plimsoll.Resources{plimsoll.CPU: 8000},
		}}, Queues: []plimsoll.QueueConfig{{Name: "ns", Dynamic: true}}}},
	}
	all := []wire.Mutation{
		{Kind: wire.KindQueueConfig, Value: wire.AppendQueueConfig(nil, &config)},
		putQueue(plimsoll.QueueStatus{Path: "root"}), putQueue(plimsoll.QueueStatus{Path: "root.p"}),
		putQueue(plimsoll.QueueStatus{Path: "root.p.ns", Leaf: true}),
	}
	job := func(id, owner string, running int32, groups ...string) {
		spec := plimsoll.JobSpec{
			ID: id, Owner: owner, OwnerGroups: groups, Queue: "root.p.ns", Groups: []plimsoll.GroupSpec{
				{Name: "g", Count: 3, Command: []string{"true"}, Resources: plimsoll.Resources{plimsoll.CPU: 2000}},
			},
		}
		all = append(all, putJob(spec, plimsoll.JobStatus{
			State: plimsoll.JobRunning, Submitted: began,
			Groups: []plimsoll.GroupStatus{{Name: "g", Count: 3, Counts: plimsoll.TaskCounts{
				Pending: 3 - running, Running: running,
			}}},
		})...)
	}
	job("a1", "ann", 2, "ops", "dev")
	job("a2", "ann", 0)
	job("b1", "bob", 1, "dev")
	job("c1", "", 1)
	return newCell(t, all...)
}

// The use of a user is summed up over the queues above its jobs, beside the limits that hold for
// it. An application counts for the group of the nearest limit. One without an owner counts for a
// group alone: in YuniKorn there is no user without a name.
func TestUsageOfUsersAndGroups(t *testing.T) {
	const ann = `{"userName":"ann","groups":{"a1":"dev","a2":"*"},"queues":{"queuePath":"root",` +
		`"resourceUsage":{"vcore":4000},"runningApplications":["a1"],"maxApplications":9,"children":[` +
		`{"queuePath":"root.p","resourceUsage":{"vcore":4000},"runningApplications":["a1"],` +
		`"maxResources":{"vcore":8000},"children":[{"queuePath":"root.p.ns","resourceUsage":{"vcore":4000},` +
		`"runningApplications":["a1"]}]}]}}`
	const bob = `{"userName":"bob","groups":{"b1":"dev"},"queues":{"queuePath":"root",` +
		`"resourceUsage":{"vcore":2000},"runningApplications":["b1"],"maxApplications":9,"children":[` +
		`{"queuePath":"root.p","resourceUsage":{"vcore":2000},"runningApplications":["b1"],"children":[` +
		`{"queuePath":"root.p.ns","resourceUsage":{"vcore":2000},"runningApplications":["b1"]}]}]}}`
	const dev = `{"groupName":"dev","applications":["a1","b1"],"queues":{"queuePath":"root",` +
		`"resourceUsage":{"vcore":6000},"runningApplications":["a1","b1"],"maxApplications":9,"children":[` +
		`{"queuePath":"root.p","resourceUsage":{"vcore":6000},"runningApplications":["a1","b1"],` +
		`"maxResources":{"vcore":8000},"children":[{"queuePath":"root.p.ns","resourceUsage":{"vcore":6000},` +
		`"runningApplications":["a1","b1"]}]}]}}`
	const others = `{"groupName":"*","applications":["a2","c1"],"queues":{"queuePath":"root",` +
		`"resourceUsage":{"vcore":2000},"runningApplications":["c1"],"maxApplications":9,"children":[` +
		`{"queuePath":"root.p","resourceUsage":{"vcore":2000},"runningApplications":["c1"],"children":[` +
		`{"queuePath":"root.p.ns","resourceUsage":{"vcore":2000},"runningApplications":["c1"]}]}]}}`
	const rules = `{"partition":"default","rules":[{"name":"provided","parameters":{"create":"false"}},` +
		`{"name":"tag","parameters":{"create":"true","tagName":"namespace"},"filter":{"type":"deny",` +
		`"groupList":["ops","dev"],"userExp":"^a.*"},"parentRule":{"name":"fixed","parameters":` +
		`{"create":"false","qualified":"true","queue":"root.p"}}},` +
		`{"name":"recovery","parameters":{"queue":"root.@recovery@"}}]}`
	for path, want := range map[string]string{
		"usage/users":     "[" + ann + "," + bob + "]",
		"usage/user/ann":  ann,
		"usage/groups":    "[" + others + "," + dev + "]",
		"usage/group/dev": dev,
		"placementrules":  rules,
	} {
		w := get(rest.New(rest.Config{}, withUsers(t)), http.MethodGet, ofPartition+path)
		if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusOK || got != want {
			t.Errorf("%s: status %d, got\n%s\nwant\n%s", path, w.Code, got, want)
		}
	}
	w := get(rest.New(rest.Config{}, withUsers(t)), http.MethodGet, "/ws/v1/config")
	if strings.Contains(w.Body.String(), "name: ns") {
		t.Errorf("a dynamic queue is in the configuration:\n%s", w.Body)
	}
	c := withUsers(t)
	c.most = 3000
	w = get(rest.New(rest.Config{}, c), http.MethodGet, ofPartition+"usage/users")
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("without room: status %d: %s", w.Code, w.Body)
	}
}

// The dump of the whole state has the rules of each partition.
func TestTheDumpHasThePlacementRules(t *testing.T) {
	h := rest.New(rest.Config{}, withUsers(t))
	rules := strings.TrimSpace(get(h, http.MethodGet, ofPartition+"placementrules").Body.String())
	w := get(h, http.MethodGet, rest.DumpPath)
	if want := `"placementRules":[` + rules + `]`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("got\n%s\nwant in it\n%s", w.Body, want)
	}
}

// An application has the groups of its owner, and the highest priority of its waiting requests,
// also if that is below zero.
func TestGroupsAndPriorityOfAnApplication(t *testing.T) {
	waits := func(groups ...int32) *cell {
		spec := plimsoll.JobSpec{ID: "a", Owner: "ann", OwnerGroups: []string{"ops", "dev"}, Queue: "root.q"}
		status := plimsoll.JobStatus{State: plimsoll.JobAccepted, Submitted: began}
		for i, priority := range groups {
			name := string(rune('a' + i))
			spec.Groups = append(spec.Groups, plimsoll.GroupSpec{Name: name, Count: 1, Priority: priority})
			status.Groups = append(status.Groups, plimsoll.GroupStatus{
				Name: name, Count: 1, Counts: plimsoll.TaskCounts{Pending: 1},
			})
		}
		status.Groups[0].Counts = plimsoll.TaskCounts{Running: 1}
		return newCell(t, putJob(spec, status)...)
	}
	for _, c := range []struct {
		groups []int32
		want   string
	}{
		{[]int32{9}, ""},
		{[]int32{9, -7}, `"maxRequestPriority":-7,`},
		{[]int32{9, -7, -3, -5}, `"maxRequestPriority":-3,`},
		{[]int32{-9, -7, 4}, `"maxRequestPriority":4,`},
	} {
		w := get(rest.New(rest.Config{}, waits(c.groups...)), http.MethodGet, ofPartition+"application/a")
		got := w.Body.String()
		has := strings.Contains(got, `"maxRequestPriority"`)
		if has != (c.want != "") || !strings.Contains(got, c.want) ||
			!strings.Contains(got, `"user":"ann","groups":["ops","dev"]`) {
			t.Errorf("%v: want %s and the groups, got\n%s", c.groups, c.want, got)
		}
	}
}
