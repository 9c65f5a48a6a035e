package main

import (
	"encoding/json"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

// shows compares the -o json output of a value with its fields. hidden names the fields that are
// left out, with the reason.
func shows[T any](view func(*T) any, o fill.Options, hidden map[string]string) func(t *testing.T) {
	return func(t *testing.T) {
		ignored := fill.Ignored(o, func(v *T) string {
			data, err := json.Marshal(view(v))
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		})
		for _, field := range ignored {
			if hidden[field] == "" {
				t.Errorf("%s of %T is not shown by -o json and yaml; add it to the view in view.go, or to the "+
					"table of this test", field, *new(T))
			}
			delete(hidden, field)
		}
		for field := range hidden {
			t.Errorf("%s of %T is shown; take it out of the table of this test", field, *new(T))
		}
	}
}

// TestEveryFieldIsShown sets every field of the objects that commands print, and checks that -o
// json shows it.
func TestEveryFieldIsShown(t *testing.T) {
	pending := fill.Options{Values: map[string]func(int) any{"State": func(int) any { return plimsoll.TaskPending }}}
	t.Run("job", shows(func(s *plimsoll.JobStatus) any { return viewJob(s) }, fill.Options{}, map[string]string{
		"Groups[].Wait.Known": "the reason has it", "Deleted": "such a job is hidden",
	}))
	task := func(k *plimsoll.Task) any {
		v := viewTask(k, "")
		v.Attempts = viewAttempts(k.AllAttempts())
		return v
	}
	t.Run("task", shows(task, pending, map[string]string{
		"NotBefore": "the group's reason says what its tasks wait for", "Revision": "nobody has asked for it yet",
	}))
	traits := fill.Options{OneOf: []string{"Traits[]"}} // a flag or words
	t.Run("node", shows(func(n *client.NodeInfo) any { return viewNode(n) }, traits, map[string]string{
		"Status.ID": "it is the node's", "Node.Gate.Sequence": "it is between the agent and the state",
		"Node.Gate.Closed":     "the reason says it, or stands for it",
		"Node.Key":             "it is between the agent and gateways",
		"Node.Session":         "it is between the agent and gateways",
		"Node.Peer":            "it is for gateways, which check the address by it",
		"Node.Evictions[].Job": "plimsoll explain tells it", "Node.Evictions[].Group": "plimsoll explain tells it",
		"Node.Evictions[].Index": "plimsoll explain tells it", "Node.Evictions[].Until": "plimsoll explain tells it",
	}))
	t.Run("queue", shows(func(q *plimsoll.QueueStatus) any { return viewQueue(q) }, fill.Options{}, nil))
	t.Run("history event", shows(func(e *client.HistoryEvent) any { return viewHistoryEvent(e) }, fill.Options{}, nil))
	t.Run("history job", shows(func(j *client.HistoryJob) any { return viewHistoryJob(j) }, fill.Options{}, nil))
	t.Run("history status", shows(
		func(h *client.HistoryStatus) any { return viewHistoryStatus(h) }, fill.Options{},
		map[string]string{"Registered.InstanceUUID": "next and behind are counted in it"},
	))
	t.Run("cluster at", shows(
		func(c *client.ClusterAt) any { return viewClusterAt(c) }, fill.Options{},
		map[string]string{"Next": "the command reads all pages"},
	))
	t.Run("usage", shows(func(r *client.UsageRow) any { return viewUsage([]string{"owner"}, r) }, fill.Options{}, nil))
	t.Run("request news", shows(func(n *client.RequestNews) any { return requestViews(n) }, fill.Options{},
		map[string]string{
			"Store": "the command acknowledges by it", "WaitingEnd": "the lines before it are printed",
			"Events[].RequestEvent.Event.Type":        "it is always REQUEST",
			"Events[].RequestEvent.Event.Change":      "it is always NONE",
			"Events[].RequestEvent.Event.Detail":      "it is always DETAILS_NONE",
			"Events[].RequestEvent.Event.Head.UID":    "such an event has no head",
			"Events[].RequestEvent.Event.Head.Owner":  "such an event has no head",
			"Events[].RequestEvent.Event.Head.Labels": "such an event has no head",
			"Waiting[].Group.Wait.Known":              "the reason has it",
		}))
	t.Run("event", shows(func(r *client.EventRecord) any { return viewEvent(r) }, fill.Options{}, nil))
}
