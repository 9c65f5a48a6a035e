package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"testing"
)

// TestAHistoryServerNeedsNoChange does what unicorn-history-server does. It reads the whole state
// by its former path, without a token, and then follows the stream without parameters. By the id in
// the state of each event it knows the object.
func TestAHistoryServerNeedsNoChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := start(t, "dev", "--data", s.data(), "--listen", "127.0.0.1:0", "--node", "n1", "--capacity",
		"cpu=64;memory=64Gi", "--open-ws", "--ws-event-state")
	s.address = d.says(readyLine)[1]
	s.nodeReady("n1")
	get := func(path string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, answer.Status)
		}
		t.Cleanup(func() { _ = answer.Body.Close() }) // it is read
		return answer
	}
	var dump struct {
		Partitions []struct{ ID string }
		Queues     []struct {
			ID          string
			PartitionID string `json:"partition_id"`
		}
		Nodes []struct {
			NodesInfo []struct{ ID, NodeID string }
		}
	}
	if err := json.NewDecoder(get("/ws/v1/fullstatedump").Body).Decode(&dump); err != nil {
		t.Fatal(err)
	}
	if len(dump.Partitions) != 1 || dump.Partitions[0].ID == "" || len(dump.Queues) != 1 ||
		dump.Queues[0].PartitionID != dump.Partitions[0].ID || dump.Nodes[0].NodesInfo[0].NodeID != "n1" {
		t.Errorf("the whole state is %+v", dump)
	}
	lines := bufio.NewScanner(get("/ws/v1/events/stream").Body)
	lines.Buffer(nil, 1<<20)
	s.submit("a", 2, "true", "")
	type object struct{ ID, ApplicationState string }
	var last object
	const app, node, queue, completed = 2, 3, 4, 208
	for lines.Scan() {
		var event struct {
			Type, EventChangeDetail int
			ObjectID, State         string
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		if event.Type != app && event.Type != node && event.Type != queue {
			continue
		}
		var of object
		if err := json.Unmarshal([]byte(event.State), &of); err != nil || of.ID == "" {
			t.Fatalf("%s: the state has the id %q, %v", lines.Bytes(), of.ID, err)
		}
		if event.Type != app || event.ObjectID != "a" {
			continue
		}
		if last.ID != "" && of.ID != last.ID {
			t.Errorf("the id of one job is %q and %q", last.ID, of.ID)
		}
		last = of
		if event.EventChangeDetail == completed {
			break
		}
	}
	if lines.Err() != nil || last.ApplicationState != "Completed" {
		t.Errorf("the job is %+v, %v", last, lines.Err())
	}
	if job, _ := s.job("a"); job.UID != last.ID {
		t.Errorf("the id of the job is %q, and its uid %q", last.ID, job.UID)
	}
}
