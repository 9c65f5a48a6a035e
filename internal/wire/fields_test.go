package wire

import (
	"reflect"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
	"github.com/plimsoll-dev/plimsoll/internal/lint"
)

// place is where a field of a type is copied by hand.
type place struct {
	message, proto string // and the file of proto/plimsoll/v1 in which it stands
	code           string // of this package
	also           string
}

// also of a field of the job file or the queue file.
const (
	jobFile   = "; reading and printing in internal/config (TestEveryFieldPassesThroughAFile says where); docs/reference/job-file.md"
	queueFile = "; reading and printing in internal/config (TestEveryFieldPassesThroughAFile says where); " +
		"docs/reference/queue-file.md"
)

func (p place) String() string {
	return "message " + p.message + " in " + p.proto + ", then make generate; " + p.code + " of internal/wire" + p.also
}

var places = map[string]place{
	"AccessList": {"AccessList", "objects.proto", "accessToProto and accessFromProto in partition.go", queueFile},
	"Action":     {"Action", "qos.proto", "actionToProto and actionFromProto in policy.go", ""},
	"ArchiveStatus": {
		"ArchiveStatus", "objects.proto",
		"ArchiveStatusToProto and ArchiveStatusFromProto in archivestatus.go",
		"",
	},
	"Attempt": {
		"Attempt", "objects.proto",
		"AttemptToProto, AttemptFromProto, AppendAttempt, sizeAttempt and decodeAttemptField in attempt.go",
		"; size.Attempt",
	},
	"Batch": {"Batch", "replication.proto", "AppendBatch and decodeBatch in batchcode.go", ""},
	"Constraints": {
		"Constraints", "objects.proto",
		"ConstraintsToProto and ConstraintsFromProto in constraints.go",
		"; IsZero of the type" + jobFile,
	},
	"Consistency": {
		"Consistency", "api.proto", "ConsistencyToProto and ConsistencyFromProto in consistency.go",
		"; ParseConsistency and String of the type",
	},
	"Event": {
		"Event", "objects.proto",
		"EventToProto and EventFromProto in event.go",
		"; package ring; package rest if YuniKorn has it",
	},
	"RequestEvent": {
		"RequestEvent", "requests.proto", "RequestEventToProto and RequestEventFromProto in requestevent.go", "",
	},
	"EventSettings": {
		"EventSettings", "objects.proto",
		"EventSettingsToProto and EventSettingsFromProto in eventsettings.go",
		"; eventSettings, the table of the type",
	},
	"Historian": {
		"Historian", "objects.proto", "HistorianToProto and HistorianFromProto in historian.go", "",
	},
	"EventChunk":   {"EventChunk", "replication.proto", "AppendBatch and decodeEventChunk in batchcode.go", ""},
	"EvictAction":  {"EvictAction", "qos.proto", "actionToProto and actionFromProto in policy.go", ""},
	"Eviction":     {"Eviction", "objects.proto", "NodeToProto and NodeFromProto in node.go", ""},
	"FreezeAction": {"FreezeAction", "qos.proto", "actionToProto and actionFromProto in policy.go", ""},
	"GroupSpec":    {"GroupSpec", "objects.proto", "GroupSpecToProto and GroupSpecFromProto in job.go", jobFile},
	"GroupStatus": {
		"GroupStatus", "objects.proto",
		"JobStatusToProto, JobStatusFromProto, appendGroupStatus, sizeGroupStatus and " +
			"decodeGroupStatus in jobstatus.go",
		"",
	},
	"Job":     {"Job", "objects.proto", "JobToProto and JobFromProto in job.go", ""},
	"JobHead": {"JobHead", "objects.proto", "headToProto and headFromProto in event.go", "; package ring"},
	"JobSpec": {"JobSpec", "objects.proto", "JobSpecToProto and JobSpecFromProto in job.go", jobFile},
	"JobStep": {
		"JobStep", "objects.proto",
		"JobStatusToProto, JobStatusFromProto, appendJobStep, sizeJobStep and decodeJobStep in jobstatus.go",
		"; size.JobStep",
	},
	"JobStatus": {
		"JobStatus", "objects.proto",
		"JobStatusToProto, JobStatusFromProto, AppendJobStatus and decodeJobStatusField in " +
			"jobstatus.go",
		"",
	},
	"Mutation": {
		"Mutation", "replication.proto", "AppendMutation, SizeMutation and decodeMutation in batchcode.go", "",
	},
	"Node": {"Node", "objects.proto", "NodeToProto and NodeFromProto in node.go", ""},
	"NodeFacts": {
		"NodeFacts", "objects.proto",
		"NodeFactsToProto and NodeFactsFromProto in constraints.go",
		"; IsZero and Equal of the type",
	},
	"NodeGate":   {"NodeGate", "objects.proto", "NodeToProto and NodeFromProto in node.go", ""},
	"NodeQOS":    {"NodeQOS", "qos.proto", "nodeQOSToProto and nodeQOSFromProto in policy.go", ""},
	"NodeUse":    {"NodeUse", "objects.proto", "nodeUseToProto and nodeUseFromProto in node.go", ""},
	"NodeReport": {"NodeReport", "qos.proto", "NodeReportToProto and NodeReportFromProto in policy.go", ""},
	"NodeStatus": {"NodeStatus", "objects.proto", "NodeStatusToProto and NodeStatusFromProto in node.go", ""},
	"PlatformRange": {
		"PlatformRange", "objects.proto",
		"ConstraintsToProto and ConstraintsFromProto in constraints.go",
		jobFile,
	},
	"Policy":     {"Policy", "qos.proto", "PolicyToProto and PolicyFromProto in policy.go", ""},
	"QOSOptions": {"QOSOptions", "qos.proto", "qosOptionsToProto and qosOptionsFromProto in policy.go", ""},
	"PolicyRef": {
		"PolicyRef", "qos.proto",
		"PolicyRefToProto and PolicyRefFromProto in policy.go",
		"; PolicyKey and SplitPolicyKey",
	},
	"Preferences": {
		"Preferences", "objects.proto",
		"PreferencesToProto and PreferencesFromProto in constraints.go",
		"; IsZero of the type" + jobFile,
	},
	"QOSEvent": {"QOSEvent", "qos.proto", "NodeReportToProto and NodeReportFromProto in policy.go", ""},
	"QueueConfig": {
		"QueueConfig", "objects.proto",
		"QueueConfigToProto and QueueConfigFromProto in queue.go",
		queueFile,
	},
	"NodeSort": {
		"NodeSort", "objects.proto", "partitionToProto and partitionFromProto in partition.go", queueFile,
	},
	"PartitionConfig": {
		"PartitionConfig", "objects.proto", "partitionToProto and partitionFromProto in partition.go", queueFile,
	},
	"PlacementRule": {"PlacementRule", "objects.proto", "ruleToProto and ruleFromProto in partition.go", queueFile},
	"RuleFilter":    {"RuleFilter", "objects.proto", "ruleToProto and ruleFromProto in partition.go", queueFile},
	"QueueLimit": {
		"QueueLimit", "objects.proto", "QueueConfigToProto and QueueConfigFromProto in queue.go", queueFile,
	},
	"QueueTemplate": {
		"QueueTemplate", "objects.proto", "QueueConfigToProto and QueueConfigFromProto in queue.go", queueFile,
	},
	"QueueStatus": {"QueueStatus", "objects.proto", "QueueStatusToProto and QueueStatusFromProto in queue.go", ""},
	"Requirement": {"PolicyRequirement", "qos.proto", "taskQOSToProto and taskQOSFromProto in policy.go", ""},
	"RetryPolicy": {"RetryPolicy", "objects.proto", "GroupSpecToProto and GroupSpecFromProto in job.go", jobFile},
	"Rule":        {"QOSRule", "qos.proto", "nodeQOSToProto and nodeQOSFromProto in policy.go", ""},
	"Selector":    {"Selector", "objects.proto", "selectorsToProto and selectorsFromProto in constraints.go", jobFile},
	"Spread":      {"Spread", "objects.proto", "spreadsToProto and spreadsFromProto in constraints.go", jobFile},
	"NodeAttempts": {
		"NodeAttempts", "objects.proto",
		"TaskToProto, TaskFromProto, appendNodeAttempts and decodeNodeAttempts in task.go",
		"; size.NodeAttempts",
	},
	"Task": {"Task", "objects.proto", "TaskToProto, TaskFromProto, AppendTask and decodeTaskField in task.go", ""},
	"WaitCause": {
		"GroupStatus", "objects.proto",
		"JobStatusToProto, JobStatusFromProto, appendGroupStatus, sizeGroupStatus and " +
			"decodeGroupStatus in jobstatus.go",
		"",
	},
	"TaskCounts": {
		"TaskCounts", "objects.proto",
		"JobStatusToProto, JobStatusFromProto, appendTaskCounts, sizeTaskCounts and " +
			"decodeTaskCounts in jobstatus.go",
		"; Total and Plus of the type",
	},
	"TaskQOS":        {"TaskQOS", "qos.proto", "taskQOSToProto and taskQOSFromProto in policy.go", ""},
	"TaskReport":     {"TaskReport", "agent.proto", "TaskReportToProto and TaskReportFromProto in task.go", ""},
	"ThrottleAction": {"ThrottleAction", "qos.proto", "actionToProto and actionFromProto in policy.go", ""},
	"Trait":          {"Trait", "objects.proto", "traitsToProto and traitsFromProto in constraints.go", jobFile},
	"WeightAction":   {"WeightAction", "qos.proto", "actionToProto and actionFromProto in policy.go", ""},
}

// otherwise are the types of the vocabulary that do not pass here, or pass in another way.
var otherwise = map[string]string{
	"TaskStep":          "it is derived from the attempts of a task",
	"EventSettingValue": "it is a field of EventSettings as text",
	"Backoff":           "it is a setting of programs, and goes nowhere",
	"QueueSettings":     "they are the meaning of the properties of a queue",
	"Version":           "its two numbers are fields of each answer",
	"Error":             "its cause stays behind and its code passes as a word; TestErrorsOverRPC has it",
}

// guard is the way of one type through this package.
type guard struct {
	of   reflect.Type
	meet func(t *testing.T)
}

// way is one way there and back.
type way[T any] struct {
	through string
	pass    func(v *T) (T, error)
}

func message[T, M any](to func(*T) M, from func(M) T) way[T] {
	return way[T]{"the message", func(v *T) (T, error) { return from(to(v)), nil }}
}

func record[T any](add func([]byte, *T) []byte, decode func([]byte) (T, error)) way[T] {
	return way[T]{"the record", func(v *T) (T, error) { return decode(add(nil, v)) }}
}

func passes[T any](o fill.Options, lost map[string]string, ways ...way[T]) guard {
	return guard{reflect.TypeFor[T](), func(t *testing.T) {
		for _, w := range ways {
			var in T
			fill.Fill(&in, o)
			out, err := w.pass(&in)
			if err != nil {
				t.Errorf("%T does not come back through %s: %v", in, w.through, err)
				continue
			}
			left, stale := fill.Unexpected(fill.Differences(&in, &out), lost)
			for _, d := range left {
				t.Errorf("%s.%s is lost on its way through %s (%s: %s). It belongs into: %s",
					d.Type, d.Field, w.through, d.Path, d, places[d.Type])
			}
			for _, rule := range stale {
				t.Errorf("%T: %s comes back through %s, although this test says that it does not; take that out",
					in, rule, w.through)
			}
		}
	}}
}

func policyWithout(kinds ...string) fill.Options { return fill.Options{Leave: kinds} }

// guards are the types that have a message of their own. Each field that is lost on purpose stands
// with its reason.
func guards() []guard {
	free := fill.Options{}
	task := fill.Options{Leave: []string{".ID"}}
	taskID := map[string]string{"ID": "it follows from job, group and index, and is no field of the message"}
	policy := []way[plimsoll.Policy]{message(PolicyToProto, PolicyFromProto), record(AppendPolicy, DecodePolicy)}
	return []guard{
		passes(free, nil, message(JobSpecToProto, JobSpecFromProto), record(AppendJobSpec, DecodeJobSpec)),
		passes(free, nil, message(JobToProto, JobFromProto)),
		passes(free, nil, message(JobStatusToProto, JobStatusFromProto), record(AppendJobStatus, DecodeJobStatus)),
		passes(task, taskID, message(TaskToProto, TaskFromProto), record(AppendTask, DecodeTask)),
		passes(free, nil, message(AttemptToProto, AttemptFromProto), record(AppendAttempt, DecodeAttempt)),
		passes(
			free, nil, message(ArchiveStatusToProto, ArchiveStatusFromProto),
			record(AppendArchiveStatus, DecodeArchiveStatus),
		),
		passes(free, nil, message(TaskReportToProto, TaskReportFromProto)),
		passes(free, nil, message(NodeToProto, NodeFromProto), record(AppendNode, DecodeNode)),
		passes(free, nil, message(NodeStatusToProto, NodeStatusFromProto), record(AppendNodeStatus, DecodeNodeStatus)),
		passes(
			free, nil, message(QueueConfigToProto, QueueConfigFromProto), record(AppendQueueConfig, DecodeQueueConfig),
		),
		passes(
			free, nil, message(QueueStatusToProto, QueueStatusFromProto), record(AppendQueueStatus, DecodeQueueStatus),
		),
		passes(policyWithout(".TaskQOS", ".NodeQOS"), nil, policy...),
		passes(policyWithout(".Action", ".NodeQOS"), nil, policy...),
		passes(policyWithout(".Action", ".TaskQOS"), nil, policy...),
		passes(free, nil, way[plimsoll.PolicyRef]{"the message", func(r *plimsoll.PolicyRef) (
			plimsoll.PolicyRef, error,
		) {
			return PolicyRefFromProto(PolicyRefToProto(*r)), nil
		}}),
		passes(free, nil, way[plimsoll.Consistency]{"the message", func(c *plimsoll.Consistency) (
			plimsoll.Consistency, error,
		) {
			return ConsistencyFromProto(ConsistencyToProto(*c)), nil
		}}),
		passes(free, nil, message(NodeReportToProto, NodeReportFromProto)),
		passes(free, nil, message(EventToProto, EventFromProto)),
		passes(free, nil, message(RequestEventToProto, RequestEventFromProto)),
		passes(
			free, nil, message(EventSettingsToProto, EventSettingsFromProto),
			record(AppendEventSettings, DecodeEventSettings),
		),
		passes(free, nil, message(HistorianToProto, HistorianFromProto), record(AppendHistorian, DecodeHistorian)),
		passes(fill.Options{Values: map[string]func(int) any{
			"Kind": func(n int) any { return Kind(n%(NumKinds-1) + 1) },
		}}, nil, record(AppendBatch, DecodeBatch)),
	}
}

// TestEveryFieldPassesTheWire fills every field and looks whether it comes back. A field that was
// added to its type alone is lost.
func TestEveryFieldPassesTheWire(t *testing.T) {
	for _, g := range guards() {
		t.Run(g.of.Name(), g.meet)
	}
}

// Every type of the vocabulary is one of those above or within one, so a new one cannot be
// forgotten there.
func TestEveryTypePassesTheWire(t *testing.T) {
	src, err := lint.TypeCheck("../..", ".")
	if err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	for _, g := range guards() {
		visit(g.of, met)
	}
	for _, name := range src.Structs() {
		switch {
		case !met[name] && otherwise[name] == "":
			t.Errorf("%s is a type of the vocabulary that does not pass here: add it to guards of this test, or "+
				"to otherwise with the reason", name)
		case met[name] && otherwise[name] != "":
			t.Errorf("%s passes here; take it out of otherwise", name)
		}
		if met[name] && places[name] == (place{}) {
			t.Errorf("%s is missing in places of this test: say where its fields are copied", name)
		}
	}
}

// visit notes the names of the structs within a type.
func visit(of reflect.Type, met map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		visit(of.Elem(), met)
	case reflect.Struct:
		if met[of.Name()] {
			return
		}
		met[of.Name()] = true
		for i := range of.NumField() {
			visit(of.Field(i).Type, met)
		}
	}
}
