package wire

import (
	"strings"
	"testing"
	"unicode"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/lint"
)

// contracts says for each enumeration of the vocabulary which one of the contract it is. The names
// correspond: behind the prefixes, JobNew is JOB_STATE_NEW.
var contracts = map[string]struct {
	prefix string           // of the constants
	names  map[int32]string // of the contract
	before string           // of the names
	known  func(number int32) bool
	proto  string
}{
	"ArchiveMode": {
		"Archive", pb.ArchiveMode_name, "ARCHIVE_MODE_", Known[plimsoll.ArchiveMode, int32], "objects.proto",
	},
	"StepReason": {"Reason", pb.StepReason_name, "STEP_REASON_", Known[plimsoll.StepReason, int32], "objects.proto"},
	"Class":      {"Class", pb.Class_name, "CLASS_", Known[plimsoll.Class, int32], "objects.proto"},
	"EventSubject": {
		"Subject", pb.EventSubject_name, "EVENT_SUBJECT_", Known[plimsoll.EventSubject, int32], "api.proto",
	},
	"Freshness":    {"Freshness", pb.Freshness_name, "FRESHNESS_", Known[plimsoll.Freshness, int32], "api.proto"},
	"JobState":     {"Job", pb.JobState_name, "JOB_STATE_", Known[plimsoll.JobState, int32], "objects.proto"},
	"NodeMode":     {"Node", pb.NodeMode_name, "NODE_MODE_", Known[plimsoll.NodeMode, int32], "objects.proto"},
	"PolicyKind":   {"Policy", pb.PolicyKind_name, "POLICY_KIND_", Known[plimsoll.PolicyKind, int32], "qos.proto"},
	"QOSEventKind": {"QOS", pb.QOSEventKind_name, "QOS_EVENT_KIND_", Known[plimsoll.QOSEventKind, int32], "qos.proto"},
	"RequestCause": {
		"Cause", pb.RequestCause_name, "REQUEST_CAUSE_", Known[plimsoll.RequestCause, int32], "requests.proto",
	},
	"ReservoirUse": {
		"Reservoir", pb.ReservoirUse_name, "RESERVOIR_USE_", Known[plimsoll.ReservoirUse, int32], "objects.proto",
	},
	"RetryKind":  {"Retry", pb.RetryKind_name, "RETRY_KIND_", Known[plimsoll.RetryKind, int32], "objects.proto"},
	"Scope":      {"Scope", pb.PolicyScope_name, "POLICY_SCOPE_", Known[plimsoll.Scope, int32], "qos.proto"},
	"Strategy":   {"Strategy", pb.Strategy_name, "STRATEGY_", Known[plimsoll.Strategy, int32], "objects.proto"},
	"TaskResult": {"Result", pb.TaskResult_name, "TASK_RESULT_", Known[plimsoll.TaskResult, int32], "objects.proto"},
	"TaskState":  {"Task", pb.TaskState_name, "TASK_STATE_", Known[plimsoll.TaskState, int32], "objects.proto"},
	"WaitCode":   {"Wait", pb.WaitCode_name, "WAIT_CODE_", Known[plimsoll.WaitCode, int32], "objects.proto"},
}

// plain are the enumerations that pass without one of the contract.
var plain = map[string]string{
	"ChangeDetail": "its numbers are the event design's, and those of a newer version pass too",
	"ChangeType":   "its numbers are the event design's, and those of a newer version pass too",
	"Code":         "an error carries the code's word",
	"EventType":    "its numbers are the event design's, and those of a newer version pass too",
}

// TestEveryEnumIsInTheContract reads the enumerations from the source, so that a value that was
// added there alone shows.
func TestEveryEnumIsInTheContract(t *testing.T) {
	src, err := lint.TypeCheck("../..", ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range src.Enums() {
		c, ok := contracts[e.Type]
		if !ok && plain[e.Type] == "" {
			t.Errorf("%s of %s is missing in the contract: add it to a file in proto/plimsoll/v1, and to the "+
				"table contracts of this test", e.Type, e.File)
		}
		if !ok {
			continue
		}
		for _, v := range e.Values {
			number := int32(v.Number)
			want := c.before + snake(strings.TrimPrefix(v.Name, c.prefix))
			if number == 0 {
				want = c.before + "UNSPECIFIED"
			}
			if got := c.names[number]; got != want {
				t.Errorf("%s: %s = %d is %q in the contract; write %s = %d in proto/plimsoll/v1/%s and run make "+
					"generate",
					e.Type, v.Name, number, got, want, number, c.proto)
			}
			if !c.known(number) {
				t.Errorf("%s: %s = %d is refused when it is decoded", e.Type, v.Name, number)
			}
		}
		for number, name := range c.names {
			if !c.known(number) {
				t.Errorf("%s: %s = %d is in the contract but not in %s", e.Type, name, number, e.File)
			}
		}
		for _, beyond := range []int32{-1, int32(e.Values[len(e.Values)-1].Number) + 1, 255, 256 + 1} {
			if c.known(beyond) {
				t.Errorf("%s: %d, which no version of this program has, is taken", e.Type, beyond)
			}
		}
	}
}

// snake writes OutOfMemory as OUT_OF_MEMORY.
func snake(name string) string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if lower && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		lower = unicode.IsLower(r)
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}
