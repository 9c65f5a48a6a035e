package rest_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The clients whose calls work unchanged.
const (
	webUI         = "yunikorn-web"
	historyServer = "unicorn-history-server"
)

// clientCalls are the calls of clients that were written for YuniKorn, with the fields that they
// read. Absent ones are those of which a cell knows nothing: docs/reference/yunikorn-api.md says
// why.
var clientCalls = []struct {
	client, path  string
	there, absent string
}{
	{
		webUI, clusters, "0/clusterName 0/rmBuildInformation/0/buildVersion 0/rmBuildInformation/0/rmId",
		"0/rmBuildInformation/0/buildDate",
	},
	{
		webUI, partitions, "0/name 0/nodeSortingPolicy/type 0/totalNodes 0/totalContainers 0/applications/total " +
			"0/applications/Running 0/applications/Accepted 0/applications/Completed 0/applications/Rejected", "",
	},
	{
		webUI, ofPartition + "queues", "queuename status isLeaf isManaged partition maxResource allocatedResource " +
			"pendingResource absUsedCapacity children/0/queuename children/0/partition " +
			"children/0/children/0/guaranteedResource", "properties template",
	},
	{
		webUI, ofQueue + "applications", "0/applicationID 0/usedResource 0/pendingResource 0/submissionTime 0/stateLog " +
			"0/applicationState 0/allocations/0/allocationKey 0/allocations/0/resource 0/allocations/0/priority " +
			"0/allocations/0/allocationTags/kubernetes.io~1meta~1namespace " +
			"0/allocations/0/allocationTags/kubernetes.io~1meta~1podName " +
			"0/allocations/0/nodeId 0/allocations/0/applicationId 0/allocations/0/queueName " +
			"0/allocations/0/partition", "0/maxUsedResource 0/lastStateChangeTime 0/finishedTime",
	},
	{
		webUI, ofPartition + "applications/completed",
		"0/applicationID 0/submissionTime 0/finishedTime 0/lastStateChangeTime 0/startTime", "",
	},
	{
		webUI, ofPartition + "nodes", "0/nodeID 0/hostName 0/rackName 0/partition 0/capacity 0/allocated 0/available " +
			"0/utilized/memory 0/utilized/vcore 0/attributes 0/allocations", "0/occupied 0/foreignAllocations",
	},
	{webUI, applicationHistory, "0/timestamp 0/totalApplications", ""},
	{webUI, containerHistory, "0/timestamp 0/totalContainers", ""},
	{
		webUI, utilizations, "0/clusterId 0/partition 0/utilizations/0/type 0/utilizations/0/utilization/0/bucketName " +
			"0/utilizations/0/utilization/0/numOfNodes 0/utilizations/0/utilization/0/nodeNames", "",
	},
	{
		webUI, healthcheck, "Healthy HealthChecks/0/Name HealthChecks/0/Succeeded HealthChecks/0/Description " +
			"HealthChecks/0/DiagnosisMessage", "",
	},
	{
		historyServer, rest.DumpPath, "timestamp partitions/0/id partitions/0/clusterId partitions/0/name " +
			"partitions/0/capacity/capacity partitions/0/capacity/usedCapacity partitions/0/capacity/utilization " +
			"partitions/0/totalNodes partitions/0/applications partitions/0/totalContainers partitions/0/state " +
			"applications/0/id applications/0/applicationID applications/0/partition applications/0/partition_id " +
			"applications/0/queueID applications/0/queueName applications/0/submissionTime applications/2/stateLog " +
			"applications/0/applicationState applications/0/user appHistory/0/timestamp " +
			"appHistory/0/totalApplications containerHistory/0/timestamp containerHistory/0/totalContainers " +
			"nodes/0/partitionName nodes/0/nodesInfo/0/id nodes/0/nodesInfo/0/nodeID " +
			"nodes/0/nodesInfo/0/partition_id nodes/0/nodesInfo/0/hostName nodes/0/nodesInfo/0/capacity " +
			"nodes/0/nodesInfo/0/allocated nodes/0/nodesInfo/0/available nodes/0/nodesInfo/0/utilized " +
			"nodes/0/nodesInfo/0/schedulable nodes/0/nodesInfo/0/isReserved queues/0/id queues/0/partition_id " +
			"queues/0/queuename queues/0/status queues/0/children/0/id queues/0/children/0/parentID " +
			"queues/0/children/0/partition_id queues/0/children/0/parent queues/0/children/0/children/0/runningApps " +
			"placementRules/0/partition placementRules/0/rules/0/name",
		"queues/0/parentID", // the root has no parent
	},
	{historyServer, partitions, "0/id 0/clusterId 0/name 0/capacity", ""},
	{historyServer, clusters, "0/partition 0/clusterName", ""},
	{historyServer, utilizations, "0/clusterId 0/partition", ""},
	{historyServer, healthcheck, "Healthy HealthChecks/0/Name", ""},
}

func TestEveryFieldThatAClientReadsIsThere(t *testing.T) {
	for _, of := range clientCalls {
		got := answerOf(t, rest.New(rest.Config{Version: "v1.2.3"}, small(t)), of.path)
		for _, there := range []bool{true, false} {
			places := of.there
			if !there {
				places = of.absent
			}
			for place := range strings.FieldsSeq(places) {
				if _, has := at(got, place); has != there {
					t.Errorf("%s, %s: %s is there: %v, want %v", of.client, of.path, place, has, there)
				}
			}
		}
	}
}

// answerOf returns a decoded answer.
func answerOf(t *testing.T, h http.Handler, path string) (got any) {
	t.Helper()
	if err := json.Unmarshal(get(h, http.MethodGet, path).Body.Bytes(), &got); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return got
}

// Queues come behind the queues above them, whose ids they name: unicorn-history-server stores them
// in this order, and a queue without its parent is refused there.
func TestAQueueComesBehindItsParent(t *testing.T) {
	known := map[any]bool{}
	var walk func(q any)
	walk = func(q any) {
		id, _ := at(q, "id")
		if above, has := at(q, "parentID"); has && !known[above] {
			t.Errorf("%v comes before its parent %v", id, above)
		}
		known[id] = true
		children, _ := at(q, "children")
		list, _ := children.([]any)
		for _, child := range list {
			walk(child)
		}
	}
	dump := answerOf(t, rest.New(rest.Config{}, small(t)), rest.DumpPath)
	root, _ := at(dump, "queues/0")
	walk(root)
	if len(known) != 4 {
		t.Errorf("the queues are %v", known)
	}
}

// YuniKorn's programs read the amounts of a queue file as texts.
func TestAmountsOfTheConfigurationAreTexts(t *testing.T) {
	h := rest.New(rest.Config{}, small(t))
	w := get(h, http.MethodGet, "/ws/v1/config", "Accept", "application/json")
	var file any
	if err := json.Unmarshal(w.Body.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	inDump, _ := at(answerOf(t, h, rest.DumpPath), "config")
	for _, of := range []any{file, inDump} {
		if most, _ := at(of, "partitions/0/queues/0/queues/0/queues/0/resources/max/vcore"); most != "4" {
			t.Errorf("the most vcores are %#v", most)
		}
	}
}

// The state was at another path before. Programs are led from there, with their parameters.
func TestOldPathsLeadToTheNewOnes(t *testing.T) {
	h := rest.New(rest.Config{}, small(t))
	for path, want := range map[string]string{
		"/ws/v1/fullstatedump":                      rest.DumpPath,
		"/ws/v1/fullstatedump?consistency=eventual": rest.DumpPath + "?consistency=eventual",
		"/ws/v1/metrics":                            "/metrics",
	} {
		w := get(h, http.MethodGet, path)
		if got := w.Header().Get("Location"); w.Code != http.StatusMovedPermanently || got != want {
			t.Errorf("%s: %d to %q, want %q", path, w.Code, got, want)
		}
	}
}

// The counts of past minutes are those that each minute began with. Before the first sample nothing
// is known, and behind the last revision nothing has changed.
func TestHistoryHasAnElementForEachMinute(t *testing.T) {
	for _, of := range []struct {
		path, name string
		want       []any
	}{
		{applicationHistory, "totalApplications", []any{"7", "7", "0", "0", "1", "1", "1"}},
		{containerHistory, "totalContainers", []any{"70", "70", "0", "0", "2", "2", "2"}},
	} {
		var got []map[string]any
		w := get(rest.New(rest.Config{Now: threeMinutesLater}, small(t)), http.MethodGet, of.path)
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		var counts []any
		for i, e := range got {
			counts = append(counts, e[of.name])
			if at := began - 2*60*second + int64(i)*60*second; e["timestamp"] != float64(at) {
				t.Errorf("%s: element %d is of %v, want %d", of.path, i, e["timestamp"], at)
			}
		}
		if !slices.Equal(counts, of.want) {
			t.Errorf("%s: got %v, want %v", of.path, counts, of.want)
		}
	}
	// A day later the samples are too old, and each minute has the present counts.
	later := func() time.Time { return threeMinutesLater().Add(72 * time.Hour) }
	all, _ := answerOf(t, rest.New(rest.Config{Now: later}, small(t)), containerHistory).([]any)
	if first, _ := at(all[0], "totalContainers"); len(all) != wire.CountedMinutes || first != "2" {
		t.Errorf("there are %d elements, and the first is %v", len(all), first)
	}
	// A clock that is behind the leader's hides nothing that is known.
	early := func() time.Time { return time.Unix(0, began).Add(-time.Hour) }
	all, _ = answerOf(t, rest.New(rest.Config{Now: early}, small(t)), containerHistory).([]any)
	if len(all) != 4 {
		t.Errorf("there are %d elements, want 4", len(all))
	}
}

// stateOf returns the field state of the event with an id; nil if it has none.
func stateOf(t *testing.T, h http.Handler, id string) (state any) {
	t.Helper()
	field, has := at(answerOf(t, h, batch+"?count=1&start="+id), "EventRecords/0/state")
	if !has {
		return nil
	}
	text, _ := field.(string)
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatalf("event %s: %v", id, err)
	}
	return state
}

// Each event about a job, node or queue has the object as a text of JSON, for
// unicorn-history-server. Of its tasks there is the one that the event is about.
func TestAnEventHasTheStateOfItsObjectIfThatIsWanted(t *testing.T) {
	c := small(t)
	on := func(kind plimsoll.EventType, object, reference string) plimsoll.Event {
		return plimsoll.Event{
			Type: kind, Change: plimsoll.ChangeAdd, Object: object, Reference: reference, Time: began + 6*second,
		}
	}
	c.history.records = []plimsoll.Event{
		{Type: plimsoll.EventApp, Object: "running", Time: began - second}, // of an earlier job with this id
		on(plimsoll.EventApp, "running", "running.map.1"), on(plimsoll.EventApp, "waiting", "waiting.map.0"),
		on(plimsoll.EventNode, "n1", "running.map.0"), on(plimsoll.EventNode, "n2", "running.map.0"),
		on(plimsoll.EventQueue, "root.batch", "running"), on(plimsoll.EventQueue, "root", ""),
		on(plimsoll.EventNode, "n9", ""), on(plimsoll.EventQueue, "root.gone", ""),
		on(plimsoll.EventApp, "none", ""), on(plimsoll.EventRequest, "running.map.0", "running"),
	}
	h := rest.New(rest.Config{ObjectStates: true}, c)
	get(h, http.MethodGet, batch) // all are rendered in the order of their ids
	uid := plimsoll.MakeUID(began, 7).Text()
	for id, want := range map[string]map[string]any{
		"0": nil,
		"1": {
			"id": uid, "applicationID": "running", "applicationState": "Running", "partition_id": "default",
			"queueID": "root.batch.day", "usedResource/vcore": 4000.0, "allocations/0/allocationKey": "running.map.1",
			"allocations/1": nil,
		},
		"2":  {"applicationID": "waiting", "requests/0/allocationKey": "waiting.map.0", "allocations": nil},
		"3":  {"id": "n1", "allocations/0/allocationKey": "running.map.0", "allocations/1": nil},
		"4":  {"id": "n2", "allocations": nil},
		"5":  {"id": "root.batch", "parentID": "root", "partition_id": "default", "children": nil, "childNames": nil},
		"6":  {"id": "root", "parentID": nil},
		"7":  {"id": "n9", "nodeID": "n9", "partition_id": "default"},
		"8":  {"id": "root.gone", "queuename": "root.gone", "parentID": "root", "partition_id": "default"},
		"9":  nil,
		"10": nil,
	} {
		got := stateOf(t, h, id)
		if (got == nil) != (want == nil) {
			t.Errorf("event %s has the state %v", id, got)
		}
		for place, value := range want {
			if found, _ := at(got, place); found != value {
				t.Errorf("event %s: %s is %v, want %v", id, place, found, value)
			}
		}
		if without := stateOf(t, rest.New(rest.Config{}, c), id); without != nil {
			t.Errorf("event %s has the state %v, which nobody wants", id, without)
		}
	}
}

// An event of an object that has left has what the event before had, unless the ids began anew in
// between.
func TestAnEventOfWhatHasLeftHasItsLastState(t *testing.T) {
	c := small(t)
	event := plimsoll.Event{Type: plimsoll.EventApp, Object: "running", Time: began + 6*second}
	c.history.records = []plimsoll.Event{event}
	h := rest.New(rest.Config{ObjectStates: true}, c)
	before := stateOf(t, h, "0")
	c.records = newCell(t).records
	c.history.records = append(c.history.records, event)
	after := stateOf(t, h, "1")
	if name, _ := at(after, "applicationState"); name != "Running" || !reflect.DeepEqual(after, before) {
		t.Errorf("before %v, after %v", before, after)
	}
	if fresh := stateOf(t, rest.New(rest.Config{ObjectStates: true}, c), "1"); fresh != nil {
		t.Errorf("a handler that has not seen the job knows %v", fresh)
	}
}

// An event's state has the limits of its queue as they are at that revision: those of the nodes,
// and those of the configuration.
func TestTheStateOfAQueueFollowsItsLimits(t *testing.T) {
	c := small(t)
	event := plimsoll.Event{Type: plimsoll.EventQueue, Object: "root.batch.day", Time: began}
	root := plimsoll.Event{Type: plimsoll.EventQueue, Object: "root", Time: began}
	c.history.records = []plimsoll.Event{event, root}
	h := rest.New(rest.Config{ObjectStates: true}, c)
	expect := func(id, place string, want float64) {
		t.Helper()
		if got, _ := at(stateOf(t, h, id), place); got != want {
			t.Errorf("event %s: %s is %v, want %v", id, place, got, want)
		}
	}
	expect("0", "maxRunningApps", 7)
	expect("0", "headroom/vcore", 0)
	expect("1", "maxResource/vcore", 32000)
	config := plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{
		{Name: "batch", Queues: []plimsoll.QueueConfig{{Name: "day", MaxJobs: 9}}},
	}}
	third := plimsoll.Node{ID: "n3", Capacity: plimsoll.Resources{plimsoll.CPU: 8000}}
	c.put(t, 1043, append(
		putNode(third, plimsoll.NodeStatus{}),
		wire.Mutation{Kind: wire.KindQueueConfig, Value: wire.AppendQueueConfig(nil, &config)},
		putQueue(plimsoll.QueueStatus{Path: "root.batch.day", Leaf: true}),
	)...)
	c.history.records = append(c.history.records, event, root)
	expect("2", "maxRunningApps", 9)
	expect("2", "headroom/vcore", 36000) // of the root, which uses 4
	expect("3", "maxResource/vcore", 40000)
}

// A record that cannot be read costs the state of its object, which has its names alone then. All
// other events are answered as usual, and the log is told once.
func TestARecordThatCannotBeReadCostsNoOtherState(t *testing.T) {
	c := small(t)
	broken := []byte("broken")
	c.put(t, 1043, wire.Mutation{Kind: wire.KindNode, Key: "n1", Value: broken},
		wire.Mutation{Kind: wire.KindJobStatus, Key: "running", Value: broken})
	on := func(kind plimsoll.EventType, object string) plimsoll.Event {
		return plimsoll.Event{Type: kind, Object: object, Time: began + 6*second}
	}
	c.history.records = []plimsoll.Event{
		on(plimsoll.EventNode, "n1"), on(plimsoll.EventNode, "n2"), on(plimsoll.EventNode, "n1"),
		on(plimsoll.EventApp, "running"), on(plimsoll.EventApp, "waiting"),
	}
	var faults []string
	h := rest.New(rest.Config{
		ObjectStates: true, Fault: func(err error) { faults = append(faults, err.Error()) },
	}, c)
	get(h, http.MethodGet, batch) // all are rendered in the order of their ids
	for id, want := range map[string]map[string]any{
		"0": {"id": "n1", "hostName": nil}, "1": {"id": "n2", "capacity/vcore": 16000.0}, "2": {"id": "n1"}, "3": nil,
		"4": {"applicationID": "waiting"},
	} {
		got := stateOf(t, h, id)
		if (got == nil) != (want == nil) {
			t.Errorf("event %s has the state %v", id, got)
		}
		for place, value := range want {
			if found, _ := at(got, place); found != value {
				t.Errorf("event %s: %s is %v, want %v", id, place, found, value)
			}
		}
	}
	if len(faults) != 2 || !strings.Contains(faults[0], `decode the record "n1"`) {
		t.Errorf("the faults are %q", faults)
	}
}
