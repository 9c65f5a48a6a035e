package main

import (
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/client"
)

// A node chooses tasks that are on it, or tasks that ended there. A bounded list of tasks that have
// ended has the last ones first, if the server can.
func TestTheFiltersOfAListOfTasks(t *testing.T) {
	auto := func(c taskListCmd) taskListCmd {
		if c.Sort == "" {
			c.Sort = "auto"
		}
		return c
	}
	for _, x := range []struct {
		name           string
		cmd            taskListCmd
		most           int
		node, lastNode string
		sort           client.TaskSort
	}{
		{"on a node", taskListCmd{Node: "n"}, 50, "n", "", 0},
		{"failed on a node", taskListCmd{Node: "n", Failed: true}, 50, "", "n", client.TaskSortFinished},
		{"failed, all of them", taskListCmd{Node: "n", Failed: true}, 0, "", "n", 0},
		{"with a result", taskListCmd{Node: "n", Result: []string{"lost"}}, 0, "", "n", 0},
		{"with an exit code", taskListCmd{Node: "n", ExitCode: []int32{1}}, 5, "", "n", client.TaskSortFinished},
		{"of the archive", taskListCmd{Node: "n", Failed: true, scopeFlags: scopeFlags{All: true}}, 5, "", "n", 0},
		{"failed first", taskListCmd{Sort: "failed-first"}, 5, "", "", client.TaskSortFailedFirst},
		{"by end", taskListCmd{Sort: "finished"}, 0, "", "", client.TaskSortFinished},
		{"by id", taskListCmd{Failed: true, Sort: "id"}, 5, "", "", 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			cmd := auto(x.cmd)
			filter, err := cmd.filter(&app{now: time.Now})
			if err == nil {
				filter.Sort, err = cmd.order(filter.Scope, x.most)
			}
			if err != nil || filter.Node != x.node || filter.LastNode != x.lastNode || filter.Sort != x.sort {
				t.Errorf("node %q, last node %q, sort %d, %v", filter.Node, filter.LastNode, filter.Sort, err)
			}
		})
	}
}
