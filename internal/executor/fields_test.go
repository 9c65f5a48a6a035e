package executor

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

// The supervisor tells the agent of every attempt, and must tell it again after it was started
// anew.
func TestEveryFieldOfAStatusPasses(t *testing.T) {
	var in Status
	fill.Fill(&in, fill.Options{})
	out := statusFromProto(statusToProto(&in))
	for _, d := range fill.Differences(&in, &out) {
		t.Errorf("Status.%s is lost between supervisor and agent (%s). It belongs into: message AttemptStatus "+
			"in proto/plimsoll/v1/agent.proto, "+
			"then make generate; statusToProto and statusFromProto in attempt.go", d.Path, d)
	}
}
